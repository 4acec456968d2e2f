"""What commands read: the case with its overrides, the catalogue with the user's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog
    from trainplan_models.plan import Plan


def load_case(path: Path, overrides: Sequence[str] | None, question: str | None = None) -> Case:
    """Read a case; ``question`` wins over the file and over ``overrides``.

    Raises:
        InputError: with every mistake of the case and of the overrides.
    """
    from trainplan_models.casefile import load_case as read

    extra = [f"question={question}"] if question is not None else []
    return read(path, [*(overrides or ()), *extra])


def load_catalog(directory: Path | None) -> Catalog:
    """The built-in catalogue, with the rows of ``directory`` over it.

    Raises:
        InputError: a file or a row of the directory is wrong.
    """
    from trainplan_models import catalog

    return catalog.builtin() if directory is None else catalog.load(directory)


def load_plan(path: Path) -> Plan:
    """Read a plan.json.

    Raises:
        InputError: it cannot be read, or is not a plan of this version.
    """
    from pydantic import ValidationError

    from trainplan_models.base import InputError, Problem
    from trainplan_models.plan import Plan

    file = str(path)
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", file=file)) from None
    except ValidationError as error:
        problems = [
            Problem(found["msg"], key=".".join(map(str, found["loc"])), file=file)
            for found in error.errors(include_url=False)
        ]
        problems.append(
            Problem("not a plan of this version", file=file, fix="Write it with trainplan plan -o")
        )
        raise InputError(problems) from None


def seconds(text: str, option: str) -> float:
    """A length of time given as the value of ``option``, in seconds.

    Raises:
        InputError: it is not a length of time with a unit.
    """
    from dataclasses import replace

    from trainplan_models.base import InputError
    from trainplan_models.units import parse

    try:
        return parse(text, "s")
    except InputError as error:
        raise InputError([replace(problem, key=option) for problem in error.problems]) from None
