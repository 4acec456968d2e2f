r"""Rows that follow from the others for whole numbers: options that cannot run at the same time take turns.

Where :math:`C` nodes are there, an option with more than :math:`C - k` of them runs beside none that has
:math:`k` or more; two with more than :math:`C / 2` never run side by side. For a chain :math:`c` of the
precedence, whose tasks follow each other anyway, a number of nodes :math:`k` and

.. math::
    E_{ck} = \{o: t(o) \in c,\ N_o \ge k\} \cup \{o: t(o) \notin c,\ N_o > \max(C - k, C / 2)\}

what is in :math:`E_{ck}` runs one after the other, within a window and from its start to the end of the
programme:

.. math::
    \sum_{o \in E_{ck}} \tau_{ow} \le L_w,\qquad
    \sum_{v \ge w} \sum_{o \in E_{ck}} \tau_{ov} \le \rho_w(F)

with :math:`\tau_{ow}` the time in use. :math:`\rho_w` is the time left from the start of a window on:
:math:`F - B_w` where no plan ends before :math:`B_w`, which is known from the fastest option of each task,
:math:`F^{min}` at the earliest; else the line over :math:`\max(0, F - B_w)`,

.. math::
    \rho_w(F) = (F - F^{min}) \frac{H - B_w}{H - F^{min}}

Of the :math:`k` that give the same options of the other chains the smallest says all that the others do.
Where a limit may be loosened, a node more sets its rows free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Any

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Constraint

Use = tuple[int, int]
"""(option, window)."""
Takes = dict[Use, int]
"""Nodes that each use takes of a resource, or of all of them."""
MOST_WINDOWS = 20
"""With more, rows from each of them to the end of the programme are too many and too long."""


@dataclass(frozen=True, slots=True)
class _Turns:
    """Uses that run one after the other, between the start of a window and its end or the programme's."""

    uses: tuple[Use, ...]
    window: int
    to_the_end: bool
    chains: int
    """From how many chains they are."""


def add(ctx: Context) -> None:
    """Adds the rows where tasks of several chains share nodes."""
    spec = ctx.inputs.spec
    if spec.width == 1:
        return
    all_nodes: Takes = {}
    of_resource: dict[int, Takes] = {}
    for use in [*ctx.m.USES, *ctx.m.LOOSE]:
        option = spec.options[use[0]]
        if option.all_nodes:
            all_nodes[use] = option.all_nodes
        for number, nodes in option.taken:
            if nodes:
                of_resource.setdefault(number, {})[use] = nodes
    shared: list[_Turns] = []
    for number, takes in of_resource.items():
        resource = spec.resources[number]
        if not resource.committed and max(resource.held_nodes) < inf:
            shared += _turns(ctx, takes, resource.held_nodes)
    ctx.m.c_take_turns = Constraint(
        range(len(shared)), rule=lambda m, i: _time(ctx, shared[i]) <= _room(ctx, shared[i])
    )
    if spec.max_nodes < inf and not spec.soft_limits:
        for turns in _turns(ctx, all_nodes, [spec.max_nodes] * len(spec.windows)):
            above = (turns.chains - 1) * ctx.inputs.time(spec.windows[-1][1])
            body = (_time(ctx, turns) - _room(ctx, turns)) / above
            ctx.limit("resources.max_nodes", body, 0.0, unit="nodes", per_unit=1.0)


def windows_to_the_end(ctx: Context) -> list[int]:
    """Windows from whose start to the end of the programme there are rows; where they are many, the first only."""
    windows: list[int] = ctx.m.WINDOWS
    return windows if len(windows) <= MOST_WINDOWS else windows[:1]


def time_left(ctx: Context, window: int) -> Any:
    """The time from the start of a window to the end of the programme, or more."""
    m, inputs = ctx.m, ctx.inputs
    start, horizon = inputs.start(window), inputs.time(inputs.spec.windows[-1][1])
    earliest = min(inputs.time(m.EARLIEST_END_DAYS), horizon)
    if start <= earliest:
        return m.v_finish - start
    return (m.v_finish - earliest) * ((horizon - start) / (horizon - earliest))


def _time(ctx: Context, turns: _Turns) -> Any:
    return sum(ctx.m.e_time[use] for use in turns.uses)


def _room(ctx: Context, turns: _Turns) -> Any:
    return time_left(ctx, turns.window) if turns.to_the_end else ctx.inputs.length(turns.window)


def _turns(ctx: Context, takes: Takes, nodes: Sequence[float]) -> Iterator[_Turns]:
    """What takes turns where so many nodes are there in each window."""
    for window in ctx.m.WINDOWS:
        here = {use: count for use, count in takes.items() if use[1] == window}
        yield from _among(ctx, here, nodes[window], window, to_the_end=False)
        if window in windows_to_the_end(ctx):
            later = {use: count for use, count in takes.items() if use[1] >= window}
            yield from _among(ctx, later, max(nodes[window:]), window, to_the_end=True)


def _among(ctx: Context, takes: Takes, nodes: float, window: int, *, to_the_end: bool) -> Iterator[_Turns]:
    spec = ctx.inputs.spec
    chain_of = {t: c for c, chain in enumerate(spec.chains) for t in chain}
    of_chain: dict[int, list[Use]] = {}
    for use in takes:
        of_chain.setdefault(chain_of[spec.options[use[0]].task], []).append(use)
    sets: set[frozenset[Use]] = set()
    for chain, mine in of_chain.items():
        others = [use for c, theirs in of_chain.items() if c != chain for use in theirs]
        known = 0
        whole = {takes[use] for use in mine if use in ctx.inputs.uses}
        # Loose options have too many numbers of nodes to look at each.
        for least in sorted(whole or {2**k for k in range(int(log2(max(nodes, 1.0))) + 1)}):
            large = [use for use in others if takes[use] > max(nodes - least, nodes / 2.0)]
            if len(large) > known:
                known = len(large)
                sets.add(frozenset(large).union(use for use in mine if takes[use] >= least))
    for one in sorted(map(sorted, sets)):
        chains = {chain_of[spec.options[o].task] for o, _ in one}
        if len(chains) > 1 and not any(other > frozenset(one) for other in sets):
            yield _Turns(tuple(one), window, to_the_end, len(chains))
