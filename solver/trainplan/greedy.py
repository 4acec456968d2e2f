"""A plan made without a solver, to start from where the solver would take long to find any.

The parts of a programme are placed one after the other: each task takes one option that is there for the
asking, from the end of what it follows to its own end without a pause, on as many nodes as the parts placed
before leave in every window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from trainplan.neighbourhoods import components
from trainplan.problem import ProblemSpec
from trainplan.solve import Array, Solver


@dataclass(slots=True)
class _Placed:
    """Options by task, the windows each runs in, and the nodes of each window."""

    stretches: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    end_days: float = 0.0
    usd: float = 0.0


def start_of(solver: Solver, ranked: dict[int, Sequence[int]]) -> Array | None:
    """Whole numbers of a feasible solution of the solver's model; None where none is found this way.

    Args:
        solver: of the problem.
        ranked: by task, options that nothing limits, the best first.
    """
    spec = solver.spec
    taken: dict[int, int] = defaultdict(int)
    placed: dict[int, tuple[int, tuple[int, ...]]] = {}
    parts = sorted(components(spec), key=lambda part: -_work_days(spec, part, ranked))
    for part in parts:
        tries = [_place(solver, part, ranked, taken, most) for most in _sizes(spec, part, ranked)]
        found = [placed_part for placed_part in tries if placed_part is not None]
        if not found:
            return None
        daily = sum(usd for _, usd in spec.programme_daily) / max(len(parts), 1)
        best = min(found, key=lambda one: one.usd + daily * one.end_days)
        placed |= best.stretches
        for window, nodes in best.nodes.items():
            taken[window] += nodes
    return _columns(solver, placed)


def _work_days(spec: ProblemSpec, part: Sequence[int], ranked: dict[int, Sequence[int]]) -> float:
    return sum(
        min((spec.options[o].work_days * spec.options[o].nodes for o in ranked[t]), default=0.0) for t in part
    )


def _sizes(spec: ProblemSpec, part: Sequence[int], ranked: dict[int, Sequence[int]]) -> list[int]:
    return sorted({spec.options[o].nodes for t in part for o in ranked[t]})


def _place(
    solver: Solver,
    part: Sequence[int],
    ranked: dict[int, Sequence[int]],
    taken: dict[int, int],
    most: int,
) -> _Placed | None:
    """Tasks of a part one after the other, each on its best option with at most ``most`` nodes."""
    spec, found = solver.spec, _Placed()
    ends: dict[int, float] = {}
    waiting = list(part)
    while waiting:
        task = next(t for t in waiting if all(p in ends for p in spec.tasks[t].predecessors))
        waiting.remove(task)
        begin = max([spec.tasks[task].release_days, *(ends[p] for p in spec.tasks[task].predecessors)])
        begin = max(begin, found.end_days)
        choices = [o for o in ranked[task] if spec.options[o].nodes <= most] or list(ranked[task][-1:])
        placed = None
        for option in choices:
            placed = _stretch(solver, option, begin, taken)
            if placed is not None:
                break
        if placed is None:
            return None
        windows, ends[task] = placed
        o = spec.options[option]
        found.stretches[task] = (option, windows)
        found.end_days = ends[task]
        found.usd += o.work_days * o.daily_usd + o.once_usd
        for window in windows:
            found.nodes[window] = max(found.nodes[window], o.nodes)
    return found


def _stretch(
    solver: Solver, option: int, begin_days: float, taken: dict[int, int]
) -> tuple[tuple[int, ...], float] | None:
    """Windows an option runs in and its end, from the first moment at which it can run without a pause."""
    spec = solver.spec
    o = spec.options[option]
    ceiling = spec.max_nodes

    def fits(window: int) -> bool:
        known = o.nodes == 0 or taken[window] + o.nodes <= ceiling
        return known and (option, window) in solver.inputs.uses

    starts = [begin_days, *(start for start, _ in spec.windows if start > begin_days)]
    for start_days in starts:
        end_days = start_days + o.work_days + o.setup_days
        windows = tuple(
            w for w, (a, b) in enumerate(spec.windows) if a < end_days - 1e-6 and b > start_days + 1e-6
        )
        due = min(spec.tasks[o.task].due_days, spec.windows[-1][1], spec.deadline_days)
        if end_days > due:
            return None
        if all(fits(w) for w in windows):
            return windows, end_days
    return None


def _columns(solver: Solver, placed: dict[int, tuple[int, tuple[int, ...]]]) -> Array:
    """Whole numbers of the model's columns."""
    x = np.zeros(len(solver.model.cost))
    columns, spec = solver.compiled.columns, solver.spec

    def on(name: str) -> None:
        if name in columns:
            x[columns[name]] = 1.0

    for task, (option, windows) in placed.items():
        region = spec.options[option].region
        on(f"v_in[{task},{region}]")
        tier = next((c.tier for c in spec.datasets if (c.task, c.region) == (task, region)), None)
        if tier is not None:
            on(solver.ctx.m.v_tier[task, region, tier].name)
        for window in windows:
            on(f"v_used[{option},{window}]")
            on(f"v_active[{task},{window}]")
            if window > windows[0]:
                on(f"v_runs_on[{option},{window}]")
    return x


def free_options(spec: ProblemSpec, kept: Sequence[int]) -> dict[int, list[int]]:
    """By task, the options that are there for the asking, the cheapest first."""
    found: dict[int, list[int]] = {task: [] for task in range(len(spec.tasks))}
    for number in kept:
        o = spec.options[number]
        known = spec.resources[o.resource]
        if not known.committed and min(known.held_nodes) == inf and known.grant_hours == inf:
            found[o.task].append(number)
    for options in found.values():
        options.sort(
            key=lambda n: (spec.options[n].work_days * spec.options[n].daily_usd, spec.options[n].key)
        )
    return found
