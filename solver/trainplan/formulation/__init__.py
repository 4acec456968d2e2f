"""The optimization model, block by block. Read ``build`` top to bottom; each block's mathematics is
its module's docstring. Variables are ``v_``, expressions ``e_``, constraints ``c_``, sets upper case."""

from __future__ import annotations

from trainplan.formulation import (
    billing,
    capacity,
    commitments,
    exclusion,
    goals,
    loose,
    placement,
    programme,
    recourse,
    schedule,
    selection,
    softened,
    storage,
    tightening,
)
from trainplan.formulation.context import Context
from trainplan.inputs import Inputs

BLOCKS = (
    selection.add,
    schedule.add,
    commitments.add_variables,
    capacity.add,
    softened.add,
    commitments.add,
    placement.add,
    storage.add,
    billing.add,
    loose.add,
    programme.add,
    tightening.add,
    exclusion.add,
    recourse.add,
    goals.add,
)


def build(inputs: Inputs) -> Context:
    """Builds the whole model from scaled inputs."""
    ctx = Context(inputs)
    for block in BLOCKS:
        block(ctx)
    return ctx


def build_aggregate(inputs: Inputs) -> Context:
    """Builds the model without a calendar: one window, in which nodes are only limited over time.

    Whatever satisfies the whole model satisfies this one at no more cost, so its best value bounds the
    other's.
    """
    ctx = Context(inputs)
    for block in (
        selection.add,
        schedule.add,
        commitments.add_variables,
        commitments.add_prices,
        placement.add,
        storage.add,
        billing.add,
        programme.add,
        tightening.add,
        exclusion.add,
        goals.add,
    ):
        block(ctx)
    return ctx
