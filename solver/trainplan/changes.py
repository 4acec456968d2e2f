"""A case with some of its values replaced, by the same keys as ``--set``.

``--set`` works on the text of a case file. Here the case itself is changed, which also works for the case
that a plan carries. Both read a value with the same field of the same record.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from trainplan_models.base import InputError, Problem, Record
from trainplan_models.case import Case
from trainplan_models.case_keys import holds, record_in
from trainplan_models.case_yaml import read_yaml
from trainplan_models.places import path_of


def changed(case: Case, changes: Mapping[str, str]) -> Case:
    """The case with values replaced.

    Args:
        case: what is asked.
        changes: dotted key (``tasks.pretrain.tokens``, ``resources.quotas[0].spot``) -> value as in a case
            file (``1T tokens``); an empty value removes the key.

    Raises:
        InputError: there is no such key, or the value or the case with it is wrong.
    """
    data = case.canonical()
    for key, value in changes.items():
        _write(data, key, value)
    try:
        return Case.from_canonical(data)
    except ValidationError as error:
        raise InputError([Problem(_words(one), key=", ".join(changes)) for one in error.errors()]) from None


def current(case: Case, key: str) -> str:
    """What a case has at a key of plain words, lists or records, for people; ``none`` where there is nothing."""
    here: Any = case
    for step in path_of(key):
        if isinstance(here, tuple):
            here = here[step] if isinstance(step, int) else next(one for one in here if one.name == step)
        else:
            here = getattr(here, _field(type(here), str(step), key)[0])
    if isinstance(here, tuple):
        return f"[{', '.join(map(str, here))}]" if here else "any"
    return "none" if here is None else str(here)


def _words(error: Any) -> str:
    return str(error["msg"])


def _write(data: dict[str, Any], key: str, value: str) -> None:
    steps = list(path_of(key))
    here: Any = data
    record: type[Record] | None = Case
    info: FieldInfo | None = None
    while steps:
        if isinstance(here, list):
            here = _item(here, steps, key)
            continue
        name, info = _field(record, str(steps.pop(0)), key)
        if not steps:
            here[name] = _canonical(info, value, key)
            return
        if holds(info, dict):
            entry = {".".join(map(str, steps)): read_yaml(value, "--set").data}
            here[name] |= _plain(info, entry, key)
            return
        record = record_in(info.annotation)
        if here.get(name) is None:
            here[name] = {}
        here = here[name]
    raise InputError(Problem(f"{key} is not a single value", key=key))


def _item(items: list[Any], steps: list[str | int], key: str) -> Any:
    step = steps.pop(0)
    if isinstance(step, int) or step.isdigit():
        if int(step) < len(items):
            return items[int(step)]
    else:
        for length in range(len(steps) + 1, 0, -1):
            name = ".".join(map(str, [step, *steps[: length - 1]]))
            found = next((item for item in items if item.get("name") == name), None)
            if found is not None:
                del steps[: length - 1]
                return found
    raise InputError(Problem(f"the case has no {key}", key=key))


def _field(record: type[Record] | None, step: str, key: str) -> tuple[str, FieldInfo]:
    """The attribute and field that a key of a case file stands for."""
    fields = {} if record is None else record.model_fields
    for name, info in fields.items():
        if step in (info.alias or name, name):
            return name, info
    raise InputError(Problem(f"there is no key {key}", key=key))


def _canonical(info: FieldInfo, text: str, key: str) -> Any:
    """A value as a case file has it, in canonical units."""
    given = read_yaml(text, "--set").data
    if given is None:
        return info.get_default(call_default_factory=True)
    return _plain(info, given, key)


def _plain(info: FieldInfo, given: Any, key: str) -> Any:
    """What a case file has, as plain data in canonical units."""
    alone = _record_of(info.rebuild_annotation())
    try:
        return alone.model_validate({"value": given}).model_dump(mode="json")["value"]
    except ValidationError as error:
        raise InputError([Problem(_words(one), key=key) for one in error.errors()]) from None


@cache
def _record_of(annotation: Any) -> type[BaseModel]:
    """A record with one such field: validators may look at what stands beside it, here nothing."""
    return create_model("Value", value=(annotation, ...))
