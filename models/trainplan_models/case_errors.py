"""What pydantic found wrong with a case, in words its author can act on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainplan_models.base import Problem, Record
from trainplan_models.case_keys import choices_of, example_of, field_at, holds, keys_of, listed, record_in
from trainplan_models.case_rules import did_you_mean
from trainplan_models.places import Path, Places, dotted
from trainplan_models.quantity import shown

Words = tuple[str, str]
"""Message and fix."""
_Wording = Callable[[ErrorDetails, Path, FieldInfo | None], Words]


def problem_of(error: ErrorDetails, places: Places) -> Problem:
    """The problem that one pydantic error stands for."""
    path: Path = tuple(error["loc"])
    info = field_at(path)
    words: _Wording = _WORDS.get(error["type"], _other)
    message, fix = words(error, path, info)
    file, line = places.find(path)
    return Problem(message, key=dotted(path), file=file, line=line, fix=fix)


def _record(info: FieldInfo | None) -> type[Record] | None:
    return record_in(info.annotation) if info is not None else None


def _first_key(record: type[Record]) -> str:
    return next(iter(keys_of(record)))


def _mistake(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    context = error.get("ctx", {})
    return str(context["message"]), str(context["fix"])


def _missing(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    key, example = path[-1], example_of(info)
    if info is not None and (choices := choices_of(info)):
        return "the key is missing", f"Add `{key}: {example}`, or another of {', '.join(choices[1:])}."
    record = _record(info)
    if info is not None and record is not None and holds(info, tuple):
        return "the key is missing", f"Add `{key}:` with items that begin with `- {_first_key(record)}: ...`."
    if record is not None:
        return "the key is missing", f"Add it, with {listed(keys_of(record))} under it."
    return "the key is missing", f"Add `{key}: {example}`." if example else f"Add `{key}:` with its value."


def _choice(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    choices = choices_of(info) if info is not None else ()
    fix = did_you_mean(str(error["input"]), choices, "Choices")
    return f"{shown(error['input'])} is not a {path[-1]}", fix


def _text(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    value = error["input"]
    if isinstance(value, (Mapping, list, tuple)):
        return f"{shown(value)} is not text", "Write one word or text."
    return f"{shown(value)} is not text", f'Put it in quotes: "{shown(value)}".'


def _switch(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    return f"{shown(error['input'])} is neither true nor false", "Write true or false."


def _list(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    record = _record(info)
    if record is None:
        return f"{shown(error['input'])} is not a list", "Write a list, like [first, second]."
    fix = f"Begin every item with `- `, like `- {_first_key(record)}: ...`."
    return f"{shown(error['input'])} is not a list", fix


def _mapping(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    record = _record(info)
    if record is None:
        return f"{shown(error['input'])} is not a mapping", "Write keys with values, like {key: value}."
    return f"{shown(error['input'])} is not a mapping", f"Write keys under it: {listed(keys_of(record))}."


def _empty(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    if (record := _record(info)) is not None:
        return "nothing is given", f"Add an item that begins with `- {_first_key(record)}: ...`."
    example = example_of(info)
    return "nothing is given", f"Write it like {example}." if example else "Add at least one."


def _pattern(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    examples = " or ".join(str(one) for one in (info.examples if info is not None else None) or ())
    return f"{shown(error['input'])} is not a {path[-1]} that can be used", f"Write it like {examples}."


def _whole(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    return f"{shown(error['input'])} is not a whole number", "Write it like 1 or 10."


def _too_small(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    least = error.get("ctx", {}).get("ge")
    return f"{shown(error['input'])} is less than {least:g}", f"Write {least:g} or more."


def _too_big(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    most = error.get("ctx", {}).get("le")
    return f"{shown(error['input'])} is more than {most:g}", f"Write {most:g} or less."


def _other(error: ErrorDetails, path: Path, info: FieldInfo | None) -> Words:
    example = example_of(info)
    return f"{shown(error['input'])}: {error['msg']}", f"Write it like {example}." if example else ""


_WORDS: Mapping[str, _Wording] = {
    "mistake": _mistake,
    "missing": _missing,
    "literal_error": _choice,
    "string_type": _text,
    "bool_type": _switch,
    "bool_parsing": _switch,
    "int_type": _whole,
    "int_parsing": _whole,
    "int_from_float": _whole,
    "tuple_type": _list,
    "model_type": _mapping,
    "model_attributes_type": _mapping,
    "dict_type": _mapping,
    "too_short": _empty,
    "string_too_short": _empty,
    "string_pattern_mismatch": _pattern,
    "greater_than_equal": _too_small,
    "less_than_equal": _too_big,
}
"""How to word an error of pydantic, by its type."""
