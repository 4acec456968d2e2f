"""The keys a case file may have, read off the records of ``case``, and what to say about others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from trainplan_models.base import Problem, Record
from trainplan_models.case import Case
from trainplan_models.places import Path, Places, dotted

_ALSO_CALLED = {
    "gpus": "accelerators",
    "gpu": "accelerator",
    "chips": "accelerators",
    "providers": "clouds",
    "cloud": "clouds",
    "region": "regions",
    "modes": "billing",
    "billing_modes": "billing",
    "max_cost": "budget",
    "cost_limit": "budget",
    "max_gpus": "max_accelerators",
    "seq_len": "sequence_length",
    "context_length": "sequence_length",
    "batch_size": "global_batch",
    "global_batch_size": "global_batch",
    "dtype": "precision",
    "depends_on": "after",
    "needs": "after",
    "type": "kind",
    "tags": "labels",
    "checkpoint": "checkpoints",
    "stages": "tasks",
    "jobs": "tasks",
    "epochs": "rounds",
    "objective": "question",
    "goal": "question",
    "start_date": "start",
}
"""What other tools call it -> the key here."""


@cache
def keys_of(record: type[Record]) -> dict[str, FieldInfo]:
    """The fields of a record by the key they have in a file."""
    return {info.alias or name: info for name, info in record.model_fields.items()}


def record_in(annotation: Any) -> type[Record] | None:
    """The record that a field holds, alone or in a list; None when it holds none."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return annotation
    return next((found for part in get_args(annotation) if (found := record_in(part)) is not None), None)


def field_at(path: Path) -> FieldInfo | None:
    """The field that a path of a case leads to; None where no field is."""
    record: type[Record] | None = Case
    info: FieldInfo | None = None
    for step in path:
        if isinstance(step, str):
            info = keys_of(record).get(step) if record is not None else None
            record = record_in(info.annotation) if info is not None else None
    return info


def holds(info: FieldInfo, kind: type) -> bool:
    """Whether a field holds a ``dict`` or a ``tuple``."""
    return any(get_origin(part) is kind for part in (info.annotation, *get_args(info.annotation)))


def choices_of(info: FieldInfo) -> tuple[str, ...]:
    """The words a field may hold; empty when it is not a choice of words."""
    return get_args(info.annotation) if get_origin(info.annotation) is Literal else ()


def listed(words: Iterable[str], most: int = 16) -> str:
    """Words in one line, cut when there are many."""
    words = list(words)
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def example_of(info: FieldInfo | None) -> str:
    """How a value of the field is written; empty when nothing is known."""
    if info is None:
        return ""
    if choices := choices_of(info):
        return choices[0]
    examples = [
        *(info.examples or ()),
        *(one for note in info.metadata for one in getattr(note, "examples", ())),
    ]
    return str(examples[0]) if examples else ""


def unknown_keys(data: dict[str, Any], places: Places) -> list[Problem]:
    """A problem for every key that a case does not have.

    The keys are taken out of ``data``; one whose meaning is clear is put back under the right key, so that its value
    is checked too and the right key is not reported as missing.
    """
    return list(_unknown(data, (), Case, places))


def _unknown(data: dict[str, Any], path: Path, record: type[Record], places: Places) -> Iterator[Problem]:
    known = keys_of(record)
    for key in [key for key in data if key not in known]:
        meant = _meant(key, record)
        file, line = places.find((*path, key))
        fix = f"Did you mean `{meant}`?" if meant else _elsewhere(key) or f"Keys here: {listed(known)}."
        yield Problem("unknown key", key=dotted((*path, key)), file=file, line=line, fix=fix)
        value = data.pop(key)
        if meant and meant not in data:
            data[meant] = value
            places.rename((*path, key), (*path, meant))
    for key, value in data.items():
        info = known[key]
        inner = record_in(info.annotation)
        in_list = isinstance(value, list) and holds(info, tuple)
        items = [((*path, key, index), item) for index, item in enumerate(value)] if in_list else []
        for where, item in items or [((*path, key), value)]:
            if inner is not None and isinstance(item, dict) and in_list == holds(info, tuple):
                yield from _unknown(item, where, inner, places)


def _meant(key: str, record: type[Record]) -> str:
    """The key of the record that was meant; empty when it is not clear."""
    known = keys_of(record)
    by_attribute = {name: info.alias or name for name, info in record.model_fields.items()}
    word = key.lower().replace(" ", "_")
    for candidate in (word, word.replace("-", "_"), word.replace("_", "-")):
        candidate = _ALSO_CALLED.get(candidate, candidate)
        if candidate in known:
            return candidate
        if candidate in by_attribute:
            return by_attribute[candidate]
    if _elsewhere(key):
        return ""
    close = get_close_matches(word, known, n=1, cutoff=0.7)
    return close[0] if close else ""


def _elsewhere(key: str) -> str:
    """Where in a case a key belongs, when not where it was written."""
    word = _ALSO_CALLED.get(key, key)
    homes = [f"`{home}`" for name, home in _homes() if name == word]
    return f"`{word}` belongs under {' or '.join(homes)}." if homes else ""


@cache
def _homes() -> tuple[tuple[str, str], ...]:
    """Every key with the place it belongs, but for the top level and shapes written out."""

    def walk(record: type[Record], home: str) -> Iterator[tuple[str, str]]:
        for key, info in keys_of(record).items():
            if home:
                yield key, home
            inner = record_in(info.annotation)
            if inner is not None and key != "model":
                yield from walk(
                    inner, f"{home}.{key}".removeprefix(".") + ("[]" if holds(info, tuple) else "")
                )

    return tuple(walk(Case, ""))
