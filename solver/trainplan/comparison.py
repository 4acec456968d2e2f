"""The rows of a sweep side by side: differences to the unchanged case, and only the inputs that differ."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainplan.whatif import Row
from trainplan_models.base import InputError, Problem

DAY_S = 86400.0
Record = dict[str, str | float | None]
RESULTS = ("expected_usd", "total_usd", "finish_days", "tokens", "chance_frac")
"""What is compared, in this order."""
FORMATS = {"usd": "#,##0.00", "days": "0.00", "tokens": "#,##0", "frac": "0.0%"}
"""How a column of the spreadsheet is shown, by the last word of its name."""


def differing(rows: Sequence[Row]) -> list[str]:
    """Keys of the case whose values are not the same in all rows."""
    keys = dict.fromkeys(key for row in rows for key in row.changes)
    return [key for key in keys if len({row.changes.get(key) for row in rows}) > 1]


def records_of(rows: Sequence[Row]) -> list[Record]:
    """A flat record for each row: inputs that differ, results, absolute and relative differences to the first."""
    keys = differing(rows)
    results = [_results(row) for row in rows]
    wanted = [name for name in RESULTS if any(result[name] is not None for result in results)]
    wanted = [name for name in wanted if name != "tokens" or len({r["tokens"] for r in results} - {None}) > 1]
    found = []
    for row, result in zip(rows, results, strict=True):
        record: Record = {"point": row.name}
        record |= {key: row.changes.get(key, "") for key in keys}
        record["status"] = row.status
        for name in wanted:
            record[name] = result[name]
            record |= _differences(name, result[name], results[0][name])
        record |= {"decision": "; ".join(row.decision), "reason": row.reason}
        found.append(record)
    return found


def _results(row: Row) -> dict[str, float | None]:
    return {
        "expected_usd": row.expected_usd,
        "total_usd": row.total_usd,
        "finish_days": None if row.finish_s is None else row.finish_s / DAY_S,
        "tokens": row.tokens,
        "chance_frac": row.chance_frac,
    }


def _differences(name: str, value: float | None, base: float | None) -> Record:
    """``more_...`` in the unit of the result and as a share of the first row's."""
    apart = None if value is None or base is None else value - base
    found: Record = {f"more_{name}": apart}
    if name != "chance_frac":
        share = None if apart is None or not base else apart / base
        found[f"more_{name.rsplit('_', 1)[0]}_frac"] = share
    return found


def csv_of(records: Sequence[Record]) -> str:
    """The records as CSV, a header first."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def write_xlsx(records: Sequence[Record], path: Path) -> None:
    """The records as a spreadsheet.

    Raises:
        InputError: openpyxl is not installed.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.styles import Font
    except ImportError:
        fix = "Install it with: pip install 'trainplan[xlsx]'"
        raise InputError(Problem("a spreadsheet needs openpyxl", key="--xlsx", fix=fix)) from None
    book = Workbook()
    sheet: Any = book.active
    sheet.title = "what-if"
    names = list(records[0])
    sheet.append(names)
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for record in records:
        sheet.append([record[name] for name in names])
    for column, name in zip(sheet.columns, names, strict=True):
        shown = FORMATS.get(name.rsplit("_", 1)[-1])
        for cell in column[1:]:
            if shown is not None and isinstance(cell.value, float):
                cell.number_format = shown
        widest = max(len(str(cell.value or "")) for cell in column)
        sheet.column_dimensions[column[0].column_letter].width = min(max(widest + 2, 8), 60)
    sheet.freeze_panes = "B2"
    waiting = path.with_name(f".{path.name}.part")
    book.save(waiting)
    waiting.replace(path)
