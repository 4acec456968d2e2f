"""Which training framework runs on whose chips (``catalog/frameworks.csv``)."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

AUTO = "auto"
"""The framework that is usual on the chip."""


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    text = files("trainplan_models.catalog").joinpath("frameworks.csv").read_text(encoding="utf-8")
    return tuple(
        (row["framework"], frozenset(row["vendors"].split(";")), frozenset(row["default_for"].split(";")))
        for row in csv.DictReader(text.splitlines())
    )


def framework_on(wanted: str, vendor: str) -> str | None:
    """The framework that trains on a vendor's chips; None where the wanted one does not run there.

    Args:
        wanted: a framework, or ``auto``.
        vendor: maker of the chip.
    """
    for framework, vendors, default_for in _rows():
        if framework == wanted and vendor in vendors:
            return framework
        if wanted == AUTO and vendor in default_for:
            return framework
    return None
