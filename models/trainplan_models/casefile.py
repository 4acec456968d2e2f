"""Case files: YAML with overrides into a ``Case``, with every mistake told at once by file, line, key and fix."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from os.path import normpath
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case
from trainplan_models.case_check import check_against as check_against
from trainplan_models.case_errors import problem_of
from trainplan_models.case_keys import unknown_keys
from trainplan_models.case_overrides import SOURCE, apply_overrides
from trainplan_models.case_rules import mistakes_of
from trainplan_models.case_yaml import read_yaml
from trainplan_models.places import Path, Places, dotted
from trainplan_models.quantity import shown

MAX_FILE_BYTES = 100_000
"""Case files are text of a few kB; more is a mistaken path."""


def load_case(path: str | FilePath, overrides: Sequence[str] = ()) -> Case:
    """The case of a YAML file, with overrides.

    Args:
        path: the file. A model given as a path in it is taken from the folder of the file.
        overrides: ``key=value`` each, the key dotted (``tasks.pretrain.tokens``, ``tasks[0].tokens``), the value YAML;
            no value removes the key. A model given as a path is taken from the working directory.

    Raises:
        InputError: with every mistake found in file and overrides.
    """
    file = FilePath(path)
    return case_from_text(_text_of(file), str(path), overrides, folder=file.parent)


def case_from_text(
    text: str, file: str = "<case>", overrides: Sequence[str] = (), folder: FilePath | None = None
) -> Case:
    """As ``load_case`` for the text of a file; ``file`` is its name in messages, ``folder`` where it lies.

    Raises:
        InputError: with every mistake found.
    """
    document = read_yaml(text, file)
    if not isinstance(document.data, dict):
        raise InputError([_not_a_mapping(document.data, file), *document.problems])
    problems = document.problems + apply_overrides(document, overrides)
    places = Places(file, document.lines)
    problems += unknown_keys(document.data, places)
    problems += _resolve_models(document.data, places, FilePath() if folder is None else folder)
    case, invalid = _validated(document.data, places)
    problems += invalid
    if case is None or problems:
        once = list(dict.fromkeys(problems))
        raise InputError(sorted(once, key=lambda problem: (problem.file == SOURCE, problem.line)))
    return case


def case_schema() -> dict[str, Any]:
    """The JSON Schema of a case file, for editors."""
    schema = Case.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _validated(data: dict[str, Any], places: Places) -> tuple[Case | None, list[Problem]]:
    """The case, or what is wrong with single values and with what must hold between them."""
    try:
        return Case.model_validate(data).placed(places), []
    except ValidationError as error:
        problems = [problem_of(one, places) for one in error.errors() if not _said_by_items(one)]
    for mistake in mistakes_of(data):
        file, line = places.find(mistake.path)
        problems.append(Problem(mistake.message, dotted(mistake.path), file, line, mistake.fix))
    return None, problems


def _said_by_items(error: ErrorDetails) -> bool:
    """Whether a list is called too short only because its items are wrong."""
    return error["type"] == "too_short" and len(error["input"]) > 0


# ------------------------------------------------------------------------------------------ the file
def _text_of(path: FilePath) -> str:
    name = str(path)
    try:
        if path.is_dir():
            cases = sorted(one.name for one in path.iterdir() if one.suffix in (".yaml", ".yml"))
            fix = f"Name a file in it: {', '.join(cases[:8])}." if cases else "Name a YAML file."
            raise InputError(Problem("is a folder, not a case file", file=name, fix=fix))
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise InputError(Problem("there is no such file", file=name, fix=_near(path))) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(Problem(f"cannot be read: {reason}", file=name)) from None
    if len(data) > MAX_FILE_BYTES:
        message = f"is larger than {MAX_FILE_BYTES // 1000} kB, which no case is"
        raise InputError(Problem(message, file=name, fix="Name a case file: YAML text of a few kB."))
    return _decoded(data, name)


def _decoded(data: bytes, name: str) -> str:
    fix = "Save the file as UTF-8."
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(Problem("is UTF-16 text, not UTF-8", file=name, fix=fix))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message = f"is not UTF-8 text: byte 0x{data[error.start]:02x} cannot be read"
        raise InputError(Problem(message, file=name, line=line, fix=fix)) from None
    if (position := text.find("\0")) >= 0:
        line = text.count("\n", 0, position) + 1
        raise InputError(
            Problem("is not text: it has a zero byte", file=name, line=line, fix="Name a YAML file.")
        )
    return text


def _near(path: FilePath) -> str:
    """Files with a name like the missing one."""
    try:
        there = [one.name for one in path.parent.iterdir() if one.is_file()]
    except OSError:
        return f"There is no folder {path.parent} either."
    close = get_close_matches(path.name, there, n=1)
    return (
        f"Did you mean {path.parent / close[0]}?"
        if close
        else "`trainplan init` writes a case to start from."
    )


def _not_a_mapping(data: Any, file: str) -> Problem:
    fix = "Begin with `name: my-case` and `tasks:`; `trainplan init` writes a case to start from."
    if data is None:
        return Problem("the file is empty", file=file, fix=fix)
    if isinstance(data, str):
        return Problem(
            f"the file is text, not keys: {shown(data)}", file=file, fix="Write a space after every colon."
        )
    return Problem(f"the file is {shown(data)}, not keys with values", file=file, fix=fix)


# ------------------------------------------------------------------------------------------ models in files
def _resolve_models(data: dict[str, Any], places: Places, folder: FilePath) -> list[Problem]:
    """Take models given as a path from the folder of the file that says so; files that are missing are reported."""
    problems = []
    tasks = data.get("tasks")
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        model = task.get("model") if isinstance(task, dict) else None
        if not isinstance(model, str):
            continue
        path: Path = ("tasks", index, "model")
        source, line = places.find(path)
        found = (FilePath() if source == SOURCE else folder) / FilePath(model).expanduser()
        is_folder = (found / "config.json").is_file()
        if not model.endswith(".json") and not model.startswith((".", "/", "~")) and not is_folder:
            continue  # a name of the catalogue
        if found.is_dir():
            found = found / "config.json"
        if not found.is_file():
            message = f"there is no file {normpath(found)}"
            problems.append(Problem(message, dotted(path), source, line, _near(found)))
        task["model"] = normpath(found)
    return problems
