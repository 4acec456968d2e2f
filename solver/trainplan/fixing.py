"""The whole numbers of an answer, to be fixed while the rest is solved again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainplan.formulation.context import Context
from trainplan.highs import Compiled
from trainplan.highs_worker import Request

Array = np.ndarray[Any, np.dtype[Any]]
NOTHING = 1e-7
"""Shares below this are the solver's rounding."""


def settled(ctx: Context, compiled: Compiled, x: Array) -> Iterator[Array]:
    """A solution without what is used for nothing, then the solution itself.

    A search that stopped early may leave an option that is set up in a window, does nothing there and is not
    run on into the next: it costs its set-up, and may lie after the end of its task. It may also go through a
    region in which nothing of the task is done. Without these the rest is nearly always still a solution, and
    mostly a cheaper one; a way through a region may also be the cheapest for its traffic.
    """
    value = compiled.value
    idle: set[tuple[int, int]] = set()
    for option, window in sorted(ctx.inputs.uses, key=lambda use: -use[1]):
        if value(x, f"v_used[{option},{window}]") <= 0.5:
            continue
        leads_on = value(x, f"v_runs_on[{option},{window + 1}]") > 0.5 and (option, window + 1) not in idle
        if value(x, f"v_share[{option},{window}]") <= NOTHING and not leads_on:
            idle.add((option, window))
    options = ctx.inputs.spec.options
    busy = {
        (options[o].task, options[o].region)
        for o, w in ctx.inputs.uses
        if (o, w) not in idle and value(x, f"v_used[{o},{w}]") > 0.5
    }
    passed = {
        place
        for place in ctx.m.PLACES
        if place not in busy and value(x, f"v_in[{place[0]},{place[1]}]") > 0.5
    }
    if idle or passed:
        yield _without(ctx, compiled, x, idle, passed)
    yield x


def _without(
    ctx: Context, compiled: Compiled, x: Array, idle: set[tuple[int, int]], passed: set[tuple[int, int]]
) -> Array:
    found = x.copy()

    def off(name: str) -> None:
        if name in compiled.columns:
            found[compiled.columns[name]] = 0.0

    for option, window in idle:
        off(f"v_used[{option},{window}]")
        off(f"v_runs_on[{option},{window}]")
    for task, region in passed:
        off(f"v_in[{task},{region}]")
    for (task, region, _), tier in ctx.m.v_tier.items():
        if (task, region) in passed:
            off(tier.name)
    for (task, window), uses in ctx.m.uses_of_cell.items():
        if all(compiled.value(found, f"v_used[{o},{w}]") <= 0.5 for o, w in uses):
            off(f"v_active[{task},{window}]")
    return found


def carried(x: Array, known: Compiled, compiled: Compiled) -> Array:
    """A solution of one model in the columns of another, which are 0 where the first has none of that name."""
    found = np.zeros(len(compiled.model.cost))
    for name, column in compiled.columns.items():
        found[column] = known.value(x, name)
    return found


def merged(changes: Request, columns: Array, values: Array) -> tuple[Array, Array, Array]:
    """Columns and bounds of ``changes`` with further columns fixed at ``values``."""
    bounds: dict[int, tuple[float, float]] = {}
    if changes.columns is not None and changes.col_lower is not None and changes.col_upper is not None:
        bounds = {
            int(c): (float(low), float(high))
            for c, low, high in zip(changes.columns, changes.col_lower, changes.col_upper, strict=True)
        }
    bounds |= {int(c): (float(v), float(v)) for c, v in zip(columns, values, strict=True)}
    order = sorted(bounds)
    return (
        np.array(order),
        np.array([bounds[c][0] for c in order]),
        np.array([bounds[c][1] for c in order]),
    )
