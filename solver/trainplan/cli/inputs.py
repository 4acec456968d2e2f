"""What commands read: the case with its overrides, the catalogue with the user's own rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog


def load_case(path: Path, overrides: Sequence[str] | None, question: str | None = None) -> Case:
    """Read a case; ``question`` wins over the file and over ``overrides``.

    Raises:
        InputError: with every mistake of the case and of the overrides.
    """
    from trainplan_models import casefile

    extra = [f"question={question}"] if question is not None else []
    return casefile.load_case(path, [*(overrides or ()), *extra])


def load_catalog(directory: Path | None) -> Catalog:
    """The built-in catalogue, with the rows of ``directory`` over it.

    Raises:
        InputError: a file or a row of the directory is wrong.
    """
    from trainplan_models import catalog

    return catalog.builtin() if directory is None else catalog.load(directory)


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
