"""Why a task cannot run anywhere: which rule removed how much, what came nearest, and the changes that fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainplan.assembly import Assembly, assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.candidates import SLOWER
from trainplan.changes import changed, current
from trainplan.infeasible import Planner, Search, WayOut, way_words
from trainplan.negotiable import Negotiable, negotiables
from trainplan.options import LOST_WORK, TOO_LITTLE_GOODPUT
from trainplan.screening import NO_ROOM
from trainplan_models.base import InputError
from trainplan_models.plan import Plan
from trainplan_models.units import format_quantity

MOST_RULES = 6
"""Rules that are told, the ones that removed most first."""

TASK_CHANGES = (
    ("tasks.{task}.precision", "bf16"),
    ("tasks.{task}.framework", "auto"),
    ("tasks.{task}.accelerators", "[]"),
    ("tasks.{task}.billing", "[]"),
    ("tasks.{task}.optimizer", "adamw-8bit"),
    ("tasks.{task}.optimizer", "adamw-offload"),
    ("tasks.{task}.lora", "{rank: 16}"),
    ("tasks.{task}.lora", "{rank: 16, quantized_base: true}"),
    ("resources.node_counts", "[]"),
    ("checkpoints.keep_last", "1"),
)
"""Changes that are tried, the mildest first; those that are there already are not."""
LISTS = ("accelerators", "clouds", "regions", "billing")
"""Lists of ``resources`` to which one more entry may be the way out."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Why tasks cannot run, and what would let them."""

    tasks: tuple[str, ...]
    lines: tuple[str, ...]
    removed: dict[str, dict[str, int]]
    """Task (empty: pools) -> rule -> how many configurations it removed."""
    nearest: tuple[dict[str, Any], ...]
    ways: tuple[WayOut, ...]
    fits: tuple[tuple[str, str], ...]
    """Changes with which the task can run, while other limits of the case still clash."""

    @property
    def details(self) -> dict[str, Any]:
        """For programs."""
        return {
            "conflict": [],
            "ways_out": [asdict(way) for way in self.ways],
            "joint": None,
            "removed": self.removed,
            "nearest": list(self.nearest),
            "fits": [{"key": key, "value": value} for key, value in self.fits],
        }

    def text(self) -> str:
        """For people."""
        lines = list(self.lines)
        if self.ways:
            lines += ["Any one of these changes makes a plan possible:", *way_words(self.ways)]
        if self.fits:
            lines.append("With any of these it can run, but other limits of the case then still clash:")
            lines += [f"  {key} = {value}" for key, value in self.fits]
        return "\n".join(lines)


def explain(
    assembly: Assembly,
    tasks: Sequence[str],
    planner: Planner,
    cache: CandidateCache,
    *,
    search_ways: bool = True,
) -> Nothing:
    """Why tasks have no candidate.

    Args:
        assembly: the assembled case.
        tasks: names of the tasks that nothing can do.
        planner: plans a changed case through the whole chain.
        cache: candidates worked out before.
        search_ways: whether changes that fit are looked for.
    """
    case = assembly.case
    search = Search(case, planner)
    ways: list[WayOut] = []
    fits: list[tuple[str, str]] = []
    if search_ways:
        trial = _Trial(assembly, tasks, search, cache)
        ways, fits = trial.found()
    return Nothing(
        tasks=tuple(tasks),
        lines=tuple(line for task in tasks for line in _why(assembly, task)),
        removed={task: dict(assembly.removed.get(task, Counter())) for task in ("", *tasks)},
        nearest=tuple(_near(assembly, task) for task in tasks if task in assembly.nearest),
        ways=tuple(sorted(ways, key=lambda way: (way.cost_usd, way.key, way.value))),
        fits=tuple(fits),
    )


def _why(assembly: Assembly, task: str) -> Iterator[str]:
    yield f"No configuration can run task {task!r}."
    rules = Counter(assembly.removed.get(task, Counter()))
    rules.pop(SLOWER, None)  # it left the faster one
    decisive = [rule for rule in rules if rule in (LOST_WORK, TOO_LITTLE_GOODPUT) or rule.startswith(NO_ROOM)]
    ordered = sorted(rules.items(), key=lambda item: (item[0] not in decisive, -item[1], item[0]))
    for rule, count in ordered[:MOST_RULES]:
        yield f"  {count:,} removed: {rule}"
    for rule, count in assembly.removed.get("", Counter()).most_common(MOST_RULES):
        yield f"  {count:,} pools left out: {rule}"
    if not assembly.sites:
        yield "  No pool is left."
    if task in assembly.nearest:
        yield f"  Nearest: {_near_words(assembly, task)}"


def _near(assembly: Assembly, task: str) -> dict[str, Any]:
    """What came nearest to fitting, with bytes over the whole job."""
    site, miss = assembly.nearest[task]
    chips = miss.nodes * site.node.accelerators
    return {
        "task": task,
        "nodes": miss.nodes,
        "instance_type": site.node.instance_type,
        "accelerator": site.accelerator.name,
        "accelerators": chips,
        "layout": miss.layout.model_dump(),
        "needed_bytes_per_accelerator": miss.peak_memory_bytes,
        "usable_bytes_per_accelerator": miss.usable_memory_bytes,
    }


def _near_words(assembly: Assembly, task: str) -> str:
    near = _near(assembly, task)
    work = next(work for work in assembly.works if work.task.name == task)
    chips, needed = near["accelerators"], near["needed_bytes_per_accelerator"]
    usable = near["usable_bytes_per_accelerator"]

    def size(amount_bytes: float) -> str:
        return format_quantity(amount_bytes, "bytes")

    model = work.task.model if isinstance(work.task.model, str) else "the model"
    return (
        f"{model} with {work.task.optimizer} needs {size(needed * chips)} in all on {near['nodes']} x "
        f"{near['instance_type']} ({chips} x {near['accelerator']}), where {size(usable * chips)} are usable: "
        f"{size(needed)} against {size(usable)} on the fullest accelerator, {needed / usable - 1.0:.0%} too much."
    )


class _Trial:
    """Changes that let tasks run, each planned."""

    def __init__(
        self, assembly: Assembly, tasks: Sequence[str], search: Search, cache: CandidateCache
    ) -> None:
        self.assembly, self.tasks, self.search, self.cache = assembly, tasks, search, cache
        self.case = assembly.case

    def found(self) -> tuple[list[WayOut], list[tuple[str, str]]]:
        """Ways out, and changes that fit but are not enough."""
        ways = [*self._numbers(), *self.search.lost_work()]
        fits: list[tuple[str, str]] = []
        for key, value in self._changes():
            plan = self.search.plan({key: value})
            if plan is not None:
                ways.append(self._way(key, value, plan))
            elif self._runs({key: value}):
                fits.append((key, value))
        return ways, fits

    def _way(self, key: str, value: str, plan: Plan) -> WayOut:
        return WayOut(key, value, f"{current(self.case, key)} -> {value}", plan.total_usd, plan.finish_s)

    def _runs(self, changes: dict[str, str]) -> bool:
        """Whether every task has a candidate in the changed case."""
        try:
            spec = assemble(changed(self.case, changes), self.assembly.catalog, self.cache).spec
        except InputError:
            return False
        return {option.task for option in spec.options} == set(range(len(spec.tasks)))

    def _numbers(self) -> Iterator[WayOut]:
        """Limits on nodes and accelerators, loosened to the fewest that are enough."""
        for item in negotiables(self.case):
            if not item.whole:
                continue
            fewest = self._fewest(item)
            if fewest is not None and (way := self.search.way(item.key, fewest)) is not None:
                yield way

    def _fewest(self, item: Negotiable) -> float | None:
        """The fewest nodes with which every task fits in memory, if no other limit counts."""
        loose = {item.key: item.text(item.most)}
        if not self._runs(loose):
            return None
        loosened = assemble(changed(self.case, loose), self.assembly.catalog, self.cache)
        chips = item.unit == "accelerators"
        needed = 0.0
        for number, name in enumerate(task.name for task in loosened.spec.tasks):
            if name in self.tasks:
                needed = max(
                    needed,
                    min(
                        float(detail.working_accelerators if chips else detail.working_nodes)
                        for option, detail in zip(loosened.spec.options, loosened.details, strict=True)
                        if option.task == number and detail is not None
                    ),
                )
        return needed

    def _changes(self) -> Iterator[tuple[str, str]]:
        for name in LISTS:
            yield from self._longer_list(name)
        for task in self.tasks:
            from_nothing = self.case.task(task).kind == "pretrain"
            for pattern, value in TASK_CHANGES:
                if from_nothing and pattern.endswith(".lora"):
                    continue  # adapters adapt a model that is there
                key = pattern.format(task=task)
                try:
                    if changed(self.case, {key: value}) != self.case:
                        yield key, value
                except InputError:
                    continue

    def _longer_list(self, name: str) -> Iterator[tuple[str, str]]:
        """A list of ``resources`` with what the best plan without it would use."""
        key, there = f"resources.{name}", list(getattr(self.case.resources, name))
        if not there:
            return
        every = "[]" if name != "billing" else f"[{', '.join(sorted(self._sold_modes()))}]"
        plan = self.search.plan({key: every})
        if plan is None:
            if self._runs({key: every}):
                yield key, every
            return
        attribute = {"accelerators": "accelerator", "clouds": "cloud", "regions": "region", "billing": "mode"}
        used = dict.fromkeys(getattr(segment, attribute[name]) for segment in plan.segments)
        yield key, f"[{', '.join([*there, *(one for one in used if one not in there)])}]"

    def _sold_modes(self) -> set[str]:
        catalog = self.assembly.catalog
        return {offer.mode for offer in catalog.offers if offer.mode in catalog.modes}
