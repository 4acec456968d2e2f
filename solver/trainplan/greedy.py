"""A plan made without a solver, to start from where the solver would take long to find any.

The parts of a programme (tasks joined by precedence) are placed one after the other: each task takes one
option, without a pause, as early as what it follows and the nodes left by the other parts allow. Then the
options are changed one at a time, and parts placed anew, as long as that makes the plan cheaper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trainplan.inputs import scale
from trainplan.neighbourhoods import components
from trainplan.problem import ProblemSpec
from trainplan.solve import Array, Solver

MOST_SWEEPS = 4
DAY_WORTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 1e6)
"""How much a day saved may cost when options are first chosen, in daily cost of the programme."""

Choice = dict[int, int]
"""Task -> option."""


@dataclass(slots=True)
class _Part:
    """Tasks placed one after the other."""

    windows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Task -> windows it runs in."""
    nodes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Window -> most nodes of any task."""
    held: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    """(resource, window) -> most nodes of any task."""
    end_days: float = 0.0
    usd: float = 0.0


class Board:
    """Parts placed so far, and the nodes they take."""

    def __init__(self, spec: ProblemSpec, ranked: dict[int, list[int]]) -> None:
        """Args: the problem; by task, the options to choose from."""
        self.spec, self.ranked = spec, ranked
        self.uses = scale(spec, [o for options in ranked.values() for o in options]).uses
        self.parts = components(spec)
        self.daily_usd = sum(usd for _, usd in spec.programme_daily)
        self.nodes: dict[int, int] = defaultdict(int)
        self.held: dict[tuple[int, int], int] = defaultdict(int)
        self.placed: dict[int, tuple[Choice, _Part]] = {}

    def _book(self, part: _Part, sign: int) -> None:
        for window, nodes in part.nodes.items():
            self.nodes[window] += sign * nodes
        for place, nodes in part.held.items():
            self.held[place] += sign * nodes

    def put(self, number: int, choice: Choice, part: _Part) -> None:
        """Places a part, in place of what stood there."""
        self.take(number)
        self.placed[number] = (choice, part)
        self._book(part, 1)

    def take(self, number: int) -> tuple[Choice, _Part] | None:
        """Takes a part off the board."""
        known = self.placed.pop(number, None)
        if known is not None:
            self._book(known[1], -1)
        return known

    def _fits(self, option: int, window: int) -> bool:
        o, spec = self.spec.options[option], self.spec
        taken = [(number, spec.resources[number], nodes) for number, nodes in o.taken]
        if (option, window) not in self.uses or any(resource.committed for _, resource, _ in taken):
            return False
        there = all(
            self.held[number, window] + nodes <= resource.held_nodes[window]
            for number, resource, nodes in taken
        )
        return o.all_nodes == 0 or (there and self.nodes[window] + o.all_nodes <= spec.max_nodes)

    def _stretch(self, option: int, begin_days: float) -> tuple[tuple[int, ...], float] | None:
        """Windows and end of the first stretch without a pause; None where there is none in time."""
        spec, o = self.spec, self.spec.options[option]
        due = min(spec.tasks[o.task].due_days, spec.windows[-1][1], spec.deadline_days)
        for start in (begin_days, *(a for a, _ in spec.windows if a > begin_days)):
            end = start + o.work_days + o.setup_days
            if end > due:
                return None
            windows = tuple(w for w, (a, b) in enumerate(spec.windows) if a < end - 1e-6 and b > start + 1e-6)
            if all(self._fits(option, w) for w in windows):
                return windows, end
        return None

    def tried(self, number: int, choice: Choice) -> _Part | None:
        """A part on these options beside what is on the board; None where it does not fit in time."""
        spec, found = self.spec, _Part()
        waiting, done = list(self.parts[number]), set[int]()
        while waiting:
            task = next(t for t in waiting if done.issuperset(spec.tasks[t].predecessors))
            waiting.remove(task)
            done.add(task)
            o = spec.options[choice[task]]
            stretch = self._stretch(choice[task], max(spec.tasks[task].release_days, found.end_days))
            if stretch is None:
                return None
            found.windows[task], found.end_days = stretch
            found.usd += self._use_usd(choice[task], *stretch) + o.once_usd
            for window in found.windows[task]:
                found.nodes[window] = max(found.nodes[window], o.all_nodes)
                for resource, nodes in o.taken:
                    found.held[resource, window] = max(found.held[resource, window], nodes)
        return found

    def _use_usd(self, option: int, windows: tuple[int, ...], end_days: float) -> float:
        """What a stretch that ends at a time costs, each part at the price of its window."""
        spec, o = self.spec, self.spec.options[option]
        begin_days = end_days - o.work_days - o.setup_days
        return sum(
            (min(end_days, spec.windows[w][1]) - max(begin_days, spec.windows[w][0]))
            * spec.daily_usd_in(option, w)
            for w in windows
        )

    def cost_usd(self, number: int, part: _Part) -> float:
        """What the programme costs with a part so placed, as far as it depends on it."""
        others = max((p.end_days for n, (_, p) in self.placed.items() if n != number), default=0.0)
        return part.usd + self.daily_usd * max(part.end_days, others)

    def place(self, number: int) -> bool:
        """Places a part anew: by what a day is worth at first, then task by task."""
        spec = self.spec
        known = self.take(number)
        choices = [] if known is None else [known[0]]
        for worth in DAY_WORTHS:
            day_usd = worth * max(self.daily_usd, 1.0)
            choices.append(
                {
                    t: min(
                        self.ranked[t],
                        key=lambda o: spec.options[o].work_days * (spec.options[o].daily_usd + day_usd),
                    )
                    for t in self.parts[number]
                }
            )
        found = [(choice, part) for choice in choices if (part := self.tried(number, choice)) is not None]
        if not found:
            return False
        choice, part = min(found, key=lambda one: self.cost_usd(number, one[1]))
        for task in self.parts[number]:
            for option in self.ranked[task]:
                other = choice | {task: option}
                again = self.tried(number, other)
                if again is not None and self.cost_usd(number, again) < self.cost_usd(number, part) - 1e-6:
                    choice, part = other, again
        self.put(number, choice, part)
        return True

    @property
    def options(self) -> set[int]:
        """Options in use."""
        return {option for choice, _ in self.placed.values() for option in choice.values()}

    @property
    def total_usd(self) -> float:
        """Use of all parts and the programme until the last ends."""
        parts = [part for _, part in self.placed.values()]
        return sum(p.usd for p in parts) + self.daily_usd * max((p.end_days for p in parts), default=0.0)


def filled(spec: ProblemSpec, ranked: dict[int, list[int]]) -> Board | None:
    """A board with all parts placed as well as this way finds; None where they do not all fit.

    Args:
        spec: the problem.
        ranked: by task, the options to choose from.
    """
    board = Board(spec, ranked)
    least_days = {
        n: sum(min((spec.options[o].work_days for o in ranked[t]), default=0.0) for t in part)
        for n, part in enumerate(board.parts)
    }
    # What takes longest at best decides when the programme ends, and is placed first.
    for number in sorted(least_days, key=lambda n: -least_days[n]):
        if not all(ranked[t] for t in board.parts[number]) or not board.place(number):
            return None
    for _ in range(MOST_SWEEPS):
        before = board.total_usd
        for number in range(len(board.parts)):
            board.place(number)
        if board.total_usd >= before * (1.0 - 1e-4):
            break
    return board


def columns_of(board: Board, solver: Solver) -> Array:
    """Whole numbers of a solution of the solver's model, whose problem is the board's."""
    x = np.zeros(len(solver.model.cost))
    columns, spec = solver.compiled.columns, solver.spec

    def on(name: str) -> None:
        if name in columns:
            x[columns[name]] = 1.0

    for choice, part in board.placed.values():
        for task, windows in part.windows.items():
            option, region = choice[task], spec.options[choice[task]].region
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


def by_task(spec: ProblemSpec, kept: Sequence[int]) -> dict[int, list[int]]:
    """By task, the options that need not be bought first, in a fixed order."""
    found: dict[int, list[int]] = {task: [] for task in range(len(spec.tasks))}
    for number in kept:
        if not any(spec.resources[r].committed for r, _ in spec.options[number].taken):
            found[spec.options[number].task].append(number)
    for options in found.values():
        options.sort(key=lambda n: spec.options[n].key)
    return found
