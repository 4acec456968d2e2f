"""A case with what is there already added to it; what its author wrote stays as it is."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import date

    from trainplan_models.case_resources import Owned, Quota
    from trainplan_models.imports import Holding

WIDTH = 4096
"""Lines are left as long as they are."""


def day0_of(case_file: Path, start: date | None) -> date | None:
    """Day 0 of a case: what it says, else ``start``.

    Raises:
        InputError: the case is wrong, or says another day than ``start``.
    """
    from datetime import date as day

    from trainplan_models.base import InputError, Problem
    from trainplan_models.casefile import load_case

    said = load_case(case_file).start
    if said is None:
        return start
    own = day.fromisoformat(str(said)[:10])
    if start is not None and start != own:
        message = f"the case starts on {own}, not on {start}"
        raise InputError(Problem(message, key="--start", file=str(case_file), fix="Leave --start out"))
    return own


def case_with(
    case_file: Path,
    output: Path,
    owned: Sequence[Holding[Owned]] = (),
    quotas: Sequence[Holding[Quota]] = (),
    start: date | None = None,
) -> tuple[str, list[str]]:
    """The text of a case with these clusters and quotas, and the names that its author has entries for already.

    Args:
        case_file: the case; only read.
        output: where the new one goes; a model given as a path is taken from the folder of this file.
        owned: added unless a cluster or grant has the name.
        quotas: added unless the pool has one.
        start: day 0, for a case that has none.

    Raises:
        InputError: with every mistake of the case, as it is or as it would be.
    """
    from trainplan.cli.held import owned_entry, quota_entry, read_text
    from trainplan_models.casefile import case_from_text, load_case

    case = load_case(case_file)
    document, writer = _read(read_text(case_file))
    names = {one.name for one in case.resources.owned} | {one.name for one in case.resources.grants}
    pools = {one.pool for one in case.resources.quotas}
    new_owned = [one for one in owned if one.record.name not in names]
    new_quotas = [one for one in quotas if one.record.pool not in pools]
    kept = [one.record.name for one in owned if one not in new_owned]
    kept += [one.record.pool for one in quotas if one not in new_quotas]
    if case.start is None and start is not None:
        document.insert(1, "start", start.isoformat())
    _append(document, "owned", new_owned, owned_entry)
    _append(document, "quotas", new_quotas, quota_entry)
    out = io.StringIO()
    writer.dump(document, out)
    text = out.getvalue()
    case_from_text(text, file=str(output), folder=output.parent)
    return text, kept


def _read(text: str) -> tuple[Any, Any]:
    """A case that keeps its comments and order when it is written again, and what writes it."""
    from ruamel.yaml import YAML

    writer = YAML()
    writer.preserve_quotes = True
    writer.width = WIDTH
    writer.indent(mapping=2, sequence=4, offset=2)
    return writer.load(text), writer


def _append(document: Any, key: str, added: Sequence[Any], entry: Callable[[Any], Any]) -> None:
    if not added:
        return
    if document.get("resources") is None:
        document["resources"] = {}
    resources = document["resources"]
    if resources.get(key) is None:
        resources[key] = []
    resources[key].extend(entry(one) for one in added)
