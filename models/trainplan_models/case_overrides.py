"""Overrides of a case file from the command line: ``deadline=20 days``, ``tasks.pretrain.tokens=1T tokens``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainplan_models.base import InputError, Problem
from trainplan_models.case_keys import field_at, holds
from trainplan_models.case_rules import did_you_mean
from trainplan_models.case_yaml import Document, read_yaml
from trainplan_models.places import Path, dotted

SOURCE = "--set"
"""Stands for the file in messages on overrides."""

_KEY = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[\d+\])*")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class _OverrideError(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


def apply_overrides(document: Document, overrides: Sequence[str]) -> list[Problem]:
    """Write overrides into the data of a document, the later over the earlier; what cannot be is returned."""
    problems: list[Problem] = []
    for override in overrides:
        key, equals, value = (part.strip() for part in override.partition("="))
        try:
            if not equals or not _KEY.fullmatch(key):
                raise _OverrideError("not of the form key=value", "Write it like deadline=20 days.")
            path = _resolve(document.data, key)
            given = read_yaml(value, SOURCE, path)
            _write(document, path, given)
            problems += [Problem(p.message, p.key or key, SOURCE, 0, p.fix) for p in given.problems]
        except _OverrideError as error:
            problems.append(Problem(error.message, key or override, SOURCE, 0, error.fix))
        except InputError as error:
            problems += [Problem(p.message, key, SOURCE, 0, p.fix) for p in error.problems]
    return problems


def _resolve(data: Any, key: str) -> Path:
    """The path of a dotted key; items of a list are named by ``[index]`` or by their ``name``."""
    steps: list[str | int] = [int(index) if index else name for index, name in _STEP.findall(key)]
    path: list[str | int] = []
    here = data
    while steps:
        info = field_at(tuple(path)) if path else None
        if isinstance(here, list):
            here = _item(here, steps, path)
            continue
        if here is not None and not isinstance(here, dict):
            raise _OverrideError(
                f"{dotted(tuple(path))} has no keys under it", f"Set {dotted(tuple(path))} as a whole."
            )
        if here is None and info is not None and holds(info, tuple):
            raise _OverrideError(f"the case has no {dotted(tuple(path))}", "Add it to the case file.")
        step = steps.pop(0)
        if info is not None and holds(info, dict):  # keys of a dict may have dots of their own
            step = ".".join(str(part) for part in (step, *steps))
            steps.clear()
        if isinstance(step, int):
            raise _OverrideError(f"{dotted(tuple(path)) or 'the case'} is not a list", "Leave [..] out.")
        path.append(step)
        here = here.get(step) if isinstance(here, dict) else None
    return tuple(path)


def _item(items: list[Any], steps: list[str | int], path: list[str | int]) -> Any:
    """The item of a list that the next steps name; they are moved to the path."""
    where = dotted(tuple(path))
    first = steps[0]
    if isinstance(first, int) or first.isdigit():
        index = int(first)
        if index >= len(items):
            raise _OverrideError(
                f"{where}[{index}] does not exist", f"{where} has {len(items)}, counted from 0."
            )
        del steps[:1]
        path.append(index)
        return items[index]
    names = {item.get("name"): index for index, item in enumerate(items) if isinstance(item, dict)}
    for length in range(len(steps), 0, -1):  # names may have dots
        name = ".".join(str(step) for step in steps[:length])
        if name in names:
            del steps[:length]
            path.append(names[name])
            return items[names[name]]
    known = [str(name) for name in names if name is not None]
    raise _OverrideError(
        f"{where} has none named {first!r}", did_you_mean(first, known, "Names") or "Write an index."
    )


def _write(document: Document, path: Path, given: Document) -> None:
    for known in [known for known in document.lines if known[: len(path)] == path]:
        del document.lines[known]
    document.lines |= {place: (SOURCE, 0) for place in (path, *given.lines)}
    here = document.data
    *way, last = path
    for length, step in enumerate(way, start=1):
        if isinstance(here, dict) and step not in here:
            here[step] = {}
            document.lines[path[:length]] = (SOURCE, 0)
        here = here[step]
    if given.data is not None:
        here[last] = given.data
    elif isinstance(here, dict):
        here.pop(last, None)
    else:
        raise _OverrideError("an item of a list cannot be removed", "Set the whole list.")
