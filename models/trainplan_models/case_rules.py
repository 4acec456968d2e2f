"""What must hold between the keys of a case, on its plain data.

The rules read nested mappings (of a YAML file, or a dumped ``Case``) and skip whatever is not of the right
form, so that they also find their mistakes in a file whose single values are not all valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from trainplan_models.base import InputError
from trainplan_models.places import Path
from trainplan_models.units import UnitError, is_date, read_date, read_when, seconds_from_start

Data = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A broken rule, at the key that has to change."""

    path: Path
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of task must say. ``needs``: one of these keys."""

    trains: bool
    needs: tuple[str, ...]
    example: str


_TRAINED = Kind(True, ("tokens",), "tokens: 300B tokens")
_HOURS = "accelerator_hours: 5k GPU-hours"
KINDS: Mapping[str, Kind] = {
    "pretrain": _TRAINED,
    "continue": _TRAINED,
    "sft": _TRAINED,
    "reward-model": _TRAINED,
    "preference": _TRAINED,
    "rl": Kind(True, ("rollout",), "rollout: {prompts: 512, samples_per_prompt: 8, steps: 1000}"),
    "evaluate": Kind(False, ("rollout", "tokens", "accelerator_hours", "duration", "cost"), _HOURS),
    "generate-data": Kind(
        False, ("rollout", "accelerator_hours", "duration", "cost"), "rollout: {prompts: 100000}"
    ),
    "prepare-data": Kind(False, ("accelerator_hours", "duration", "cost"), "duration: 5 days"),
}
"""What each kind of task must say; ``TaskKind`` in ``case`` has the same names."""


def mistakes_of(data: Data) -> list[Mistake]:
    """Every rule that a case breaks."""
    tasks = [(i, task) for i, task in enumerate(_list(data, "tasks")) if isinstance(task, Mapping)]
    return [
        *_question(data),
        *_dates(data, tasks),
        *_task_names(tasks),
        *_order(tasks),
        *(mistake for index, task in tasks for mistake in _work(index, task)),
        *_models(tasks),
        *_resources(data),
        *_checkpoints(data),
    ]


def did_you_mean(word: str, known: Sequence[str], what: str) -> str:
    """The nearest known words, and the list of all when it is short."""
    folded = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), folded, n=1)
    near = dict.fromkeys([*close, *get_close_matches(word.lower(), folded, n=2, cutoff=0.85)])
    nearest = f"Did you mean {' or '.join(folded[name] for name in near)}?" if near else ""
    listed = f"{what}: {', '.join(known)}." if 0 < len(known) <= 12 else ""
    return f"{nearest} {listed}".strip()


# ------------------------------------------------------------------------------------------ reading plain data
def _list(data: Data, key: str) -> Sequence[object]:
    value = data.get(key)
    return value if isinstance(value, (list, tuple)) else ()


def _mapping(data: Data, key: str) -> Data:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(data: Data, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _has(data: Data, key: str) -> bool:
    return data.get(key) is not None


def _names(data: Data, key: str) -> list[str]:
    value = data.get(key)
    return [value] if isinstance(value, str) else [name for name in _list(data, key) if isinstance(name, str)]


def _seconds(value: object, start: str | None) -> float | None:
    """Seconds from day 0 where they can be told."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        return seconds_from_start(read_when(value), start)
    except (UnitError, InputError):
        return None


# ------------------------------------------------------------------------------------------ the rules
def _question(data: Data) -> Iterator[Mistake]:
    question = _text(data, "question")
    limited = _has(data, "deadline") or _has(data, "budget")
    if question in ("most-tokens", "safest") and not limited:
        message = f"{question} has no answer without a deadline or a budget"
        yield Mistake(("question",), message, "Add `deadline: 30 days` or `budget: 400k USD`.")


def _dates(data: Data, tasks: Sequence[tuple[int, Data]]) -> Iterator[Mistake]:
    start = data.get("start")
    start_valid = _valid_date(start)
    for path, value in _moments(data, tasks):
        if is_date(value) and start is None:
            message = f"{value} is a date, and the case does not say which date day 0 is"
            yield Mistake(
                path, message, "Add `start: 2026-01-01` (your day 0), or write a time like 30 days."
            )
        elif is_date(value) and start_valid and _valid_date(value) and _seconds(value, str(start)) is None:
            yield Mistake(
                path, f"{value} lies before the start {start}", "Write a later date or an earlier start."
            )
    known_start = str(start) if start_valid else None
    if _seconds(data.get("deadline"), known_start) == 0:
        yield Mistake(
            ("deadline",), "the deadline is day 0", "Write how long the work may take, like 30 days."
        )
    for index, task in tasks:
        release, due = (_seconds(task.get(key), known_start) for key in ("release", "due"))
        if release is not None and due is not None and due <= release:
            message = "the task is due before it may begin"
            yield Mistake(("tasks", index, "due"), message, "Write a later `due` or an earlier `release`.")


def _moments(data: Data, tasks: Sequence[tuple[int, Data]]) -> Iterator[tuple[Path, object]]:
    """Every key that may hold a date."""
    yield ("deadline",), data.get("deadline")
    for index, task in tasks:
        for key in ("release", "due"):
            yield ("tasks", index, key), task.get(key)
    resources = _mapping(data, "resources")
    for index, owned in enumerate(_list(resources, "owned")):
        for step, free in enumerate(_list(owned, "free") if isinstance(owned, Mapping) else ()):
            if isinstance(free, Mapping):
                yield ("resources", "owned", index, "free", step, "from"), free.get("from")
    for key in ("freezes", "price_changes"):
        for index, span in enumerate(_list(resources, key)):
            if isinstance(span, Mapping):
                yield ("resources", key, index, "from"), span.get("from")
                yield ("resources", key, index, "to"), span.get("to")
    for index, grant in enumerate(_list(resources, "grants")):
        if isinstance(grant, Mapping):
            yield ("resources", "grants", index, "expires"), grant.get("expires")


def _valid_date(value: object) -> bool:
    try:
        return is_date(value) and bool(read_date(value))
    except UnitError:
        return False


def _task_names(tasks: Sequence[tuple[int, Data]]) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for index, task in tasks:
        if name := _text(task, "name"):
            if name in seen:
                message = f"tasks[{seen[name]}] is also named {name!r}"
                yield Mistake(("tasks", index, "name"), message, "Give every task a name of its own.")
            seen.setdefault(name, index)


def _order(tasks: Sequence[tuple[int, Data]]) -> Iterator[Mistake]:
    """Every ``after`` names a task, and no task waits for itself by way of others."""
    after = {name: _names(task, "after") for _, task in tasks if (name := _text(task, "name"))}
    all_named = len(after) == len(tasks)
    reported: set[str] = set()
    for index, task in tasks:
        name, path = _text(task, "name"), ("tasks", index, "after")
        for other in _names(task, "after"):
            if other not in after and all_named:
                fix = did_you_mean(other, [known for known in after if known != name], "Tasks")
                yield Mistake(path, f"there is no task named {other!r}", fix or "Name a task of this case.")
        circle = _circle(name, after)
        if circle and not reported & set(circle):
            reported |= set(circle)
            waits = (
                f"{name} waits for itself"
                if len(circle) == 1
                else " -> ".join((*circle, name)) + " is a circle"
            )
            yield Mistake(path, waits, "Remove one `after` of it.")


def _circle(name: str, after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tasks on a way along ``after`` from a task back to itself; empty when there is none."""
    ways: list[tuple[str, ...]] = [(name,)] if name else []
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for other in after.get(way[-1], ()):
            if other == name:
                return way
            if other not in seen:
                seen.add(other)
                ways.append((*way, other))
    return ()


def _work(index: int, task: Data) -> Iterator[Mistake]:
    """A task says how much work it is, in the keys that its kind understands."""
    name = _text(task, "kind")
    if (kind := KINDS.get(name)) is None:
        return
    path: Path = ("tasks", index)
    if not any(_has(task, key) for key in kind.needs):
        needs = kind.needs[0] if len(kind.needs) == 1 else f"one of {', '.join(kind.needs)}"
        yield Mistake(
            (*path, kind.needs[0]), f"a task of kind {name} needs {needs}", f"Add `{kind.example}`."
        )
    if _has(task, "lora") and not kind.trains:
        yield Mistake(
            (*path, "lora"), f"a task of kind {name} trains nothing, so lora has no meaning", "Remove it."
        )
    if _has(task, "rollout") and "rollout" not in kind.needs:
        generating = ", ".join(other for other, row in KINDS.items() if "rollout" in row.needs)
        message = f"a task of kind {name} generates nothing, so rollout has no meaning"
        yield Mistake((*path, "rollout"), message, f"Remove it, or use one of the kinds {generating}.")
    if kind.trains and _has(task, "duration"):
        message = f"how long a task of kind {name} takes is worked out, not given"
        yield Mistake((*path, "duration"), message, "Remove it; `due` says when the task has to be done.")


def _models(tasks: Sequence[tuple[int, Data]]) -> Iterator[Mistake]:
    """Every task that runs a model has one, of its own or of the first task it follows."""
    named = {_text(task, "name"): task for _, task in tasks}
    missing = [index for index, task in tasks if _runs_model(task) and not _model(task, named)]
    for index in missing:
        message = "there is no model, and none to take over from a task before it"
        yield Mistake(
            ("tasks", index, "model"), message, "Add a catalogue name or a path: `model: llama-3-8b`."
        )
    all_known = all(_text(task, "kind") in KINDS for _, task in tasks)
    if tasks and all_known and not any(_runs_model(task) or _has(task, "model") for _, task in tasks):
        yield Mistake(
            ("tasks",), "no task has a model, so there is nothing to train", "Add a task with a `model`."
        )


def _runs_model(task: Data) -> bool:
    kind = KINDS.get(_text(task, "kind"))
    if kind is None or _text(task, "kind") == "prepare-data":
        return False
    return kind.trains or not any(_has(task, key) for key in ("accelerator_hours", "duration", "cost"))


def _model(task: Data, named: Mapping[str, Data]) -> bool:
    """Whether a model is found along the first tasks followed; also when the way leads out of the known."""
    seen: set[str] = set()
    while not _has(task, "model"):
        first = next(iter(_names(task, "after")), "")
        if not first:
            return False
        if first in seen or first not in named:
            return True  # reported as a mistake of `after`
        seen.add(first)
        task = named[first]
    return True


def _resources(data: Data) -> Iterator[Mistake]:
    resources = _mapping(data, "resources")
    held = [("owned", i, entry) for i, entry in enumerate(_list(resources, "owned"))]
    held += [("grants", i, entry) for i, entry in enumerate(_list(resources, "grants"))]
    seen: dict[str, str] = {}
    for key, index, entry in held:
        name = _text(entry, "name") if isinstance(entry, Mapping) else ""
        if name in seen:
            message = f"resources.{seen[name]} is also named {name!r}"
            yield Mistake(("resources", key, index, "name"), message, "Give it a name of its own.")
        elif name:
            seen[name] = f"{key}[{index}]"
    pools: dict[str, int] = {}
    for index, quota in enumerate(_list(resources, "quotas")):
        pool = _text(quota, "pool") if isinstance(quota, Mapping) else ""
        if pool in pools:
            message = f"quotas[{pools[pool]}] is also for {pool}"
            yield Mistake(
                ("resources", "quotas", index, "pool"), message, "Write one quota with all its keys."
            )
        elif pool:
            pools[pool] = index


def _checkpoints(data: Data) -> Iterator[Mistake]:
    checkpoints = _mapping(data, "checkpoints")
    interval, lost = _seconds(checkpoints.get("interval"), None), _seconds(data.get("max_lost_work"), None)
    if interval is not None and lost is not None and interval > lost:
        message = "a checkpoint interval longer than max_lost_work can lose more than that"
        yield Mistake(("checkpoints", "interval"), message, "Shorten it, or leave it out to have it chosen.")
    if _has(checkpoints, "keep_for") and not _has(checkpoints, "keep_every"):
        message = "keep_for has no effect without keep_every"
        yield Mistake(("checkpoints", "keep_for"), message, "Add `keep_every: 1 day`, or remove it.")
