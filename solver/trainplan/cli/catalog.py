"""``trainplan catalog show|check|import``: where the numbers come from, and what is doubtful in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainplan.cli.catalog_import import import_file
from trainplan.cli.options import AsJson, CatalogDirectory

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import Row

app = typer.Typer(
    name="catalog",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Accelerators, machines, prices, tiers, models: where each number comes from.",
)

Cells = Sequence[str]

LONG = ("source", "note")
"""Fields that tables leave out; ``show KIND NAME`` prints them."""

ON_TERMINAL = {
    "models": ("name", "layers", "hidden", "heads", "kv_heads", "ffn", "experts", "published_params"),
    "accelerators": ("name", "bf16_flops", "fp8_flops", "memory_bytes", "nic_bytes_per_s", "tdp_w"),
    "nodes": ("cloud", "instance_type", "accelerator", "accelerators", "nic_bytes_per_s", "power_w"),
    "storage_tiers": ("cloud", "service", "tier", "usd_per_gb_month", "min_days", "mbps_per_tib"),
    "modes": ("mode", "paid", "preemptible", "quota_key", "upfront_frac", "max_nodes"),
}
"""Columns of tables too wide for a terminal; away from one every column is printed."""

ATTRIBUTES = {
    "dropped_offers": "dropped",
    "storage_tiers": "tiers",
    "failure_profiles": "failures",
    "spot_profiles": "spot",
}
"""Attribute of the catalogue by kind, where it has another name."""


@app.command()
def show(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help="A table; absent: the list of them.")] = "",
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="A row: its name, pool, instance type, cloud or alias.")
    ] = "",
    as_json: AsJson = False,
    catalog: CatalogDirectory = None,
) -> None:
    """Print the tables of the catalogue, the rows of one, or one row with its source."""
    from trainplan.cli.inputs import load_catalog
    from trainplan.cli.output import print_json

    known = load_catalog(catalog)
    if not kind:
        summary = [_summary(table, _rows(known, table)) for table in _kinds()]
        if as_json:
            print_json(summary)
        else:
            _print_table(list(summary[0]), [list(map(str, row.values())) for row in summary])
        return
    table = _kind(kind)
    rows = _named(known, table, name) if name else _rows(known, table)
    if as_json:
        print_json([row.model_dump(mode="json") for row in rows])
    elif len(rows) == 1:
        _print_record(rows[0])
    else:
        _print_rows(table, rows)


@app.command()
def check(as_json: AsJson = False, catalog: CatalogDirectory = None) -> None:
    """Print listed prices that are not used and why, and what is doubtful: old prices, machines without one.

    Exit code 2 when a row cannot be used.
    """
    from trainplan.cli.inputs import load_catalog
    from trainplan.cli.output import print_json
    from trainplan_models.catalog.checks import findings

    known = load_catalog(catalog)
    found = findings(known)
    if as_json:
        from dataclasses import asdict

        dropped = [row.model_dump(mode="json") for row in known.dropped]
        print_json({"dropped_offers": dropped, "findings": [asdict(finding) for finding in found]})
    else:
        _print_dropped(known.dropped)
        sys.stdout.write(f"Findings ({len(found)})\n")
        sys.stdout.writelines(f"{f.severity}: {f.table}: {f.problem}\n" for f in found)
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(2)


app.command("import")(import_file)


# Which rows


def _kinds() -> list[str]:
    from trainplan_models.catalog.tables import TABLES

    return list(TABLES)


def _kind(word: str) -> str:
    """The table a user means, by its file name or by the attribute of the catalogue."""
    from difflib import get_close_matches

    from trainplan_models.base import InputError, Problem

    plain = word.removesuffix(".csv").replace("-", "_").lower()
    names = {**{kind: kind for kind in _kinds()}, **{short: kind for kind, short in ATTRIBUTES.items()}}
    if plain in names:
        return names[plain]
    near = get_close_matches(plain, names, n=1)
    fix = f"Did you mean {near[0]}?" if near else f"Tables are {', '.join(_kinds())}"
    raise InputError(Problem(f"no table {word!r}", key="KIND", fix=fix))


def _rows(known: Catalog, kind: str) -> list[Row]:
    rows = getattr(known, ATTRIBUTES.get(kind, kind))
    return list(rows.values() if isinstance(rows, Mapping) else rows)


def _named(known: Catalog, kind: str, name: str) -> list[Row]:
    """Rows whose key has the name in it: whole, else in part, else as an alias.

    Raises:
        InputError: there is none.
    """
    from trainplan_models.base import InputError, Problem
    from trainplan_models.catalog.tables import TABLES

    look_up: dict[str, Callable[[str], Row]] = {"accelerators": known.accelerator, "models": known.model}
    rows = _rows(known, kind)
    if kind in look_up and name not in getattr(known, kind):
        return [look_up[kind](name)]
    keys = [[str(part) for part in TABLES[kind].key_of(row)] for row in rows]
    wanted = name.casefold()
    whole = [r for r, key in zip(rows, keys, strict=True) if name in key or _pool(key) == wanted]
    found = whole or [r for r, k in zip(rows, keys, strict=True) if wanted in "/".join(k).casefold()]
    if not found:
        fix = f"`trainplan catalog show {kind}` lists them"
        raise InputError(Problem(f"no row of {kind} has {name!r} in its key", key="NAME", fix=fix))
    return found


def _pool(key: Sequence[str]) -> str:
    return "/".join(key[:3]).casefold()


def _summary(kind: str, rows: Sequence[Row]) -> dict[str, Any]:
    from trainplan_models.catalog.dates import last_day

    dates = sorted(day for row in rows if (day := last_day(row.as_of)) is not None)
    oldest, newest = (str(dates[0]), str(dates[-1])) if dates else ("", "")
    return {"kind": kind, "rows": len(rows), "oldest": oldest, "newest": newest}


# Printing


def _text(value: object, digits: int = 6) -> str:
    """A value as tables show it: empty for what is absent, numbers with so many digits."""
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, tuple):
        return ", ".join(_text(item, digits) for item in value)
    return str(value)


def _print_rows(kind: str, rows: Sequence[Row]) -> None:
    """A table without the long fields and without columns that say nothing."""
    record = type(rows[0])
    # Provenance is declared first in the records and read last.
    fields = [field for field in record.model_fields if field not in ("as_of", *LONG)] + ["as_of"]
    default = {name: info.default for name, info in record.model_fields.items()}
    shown = [f for f in fields if any(getattr(row, f) not in (None, default[f]) for row in rows)]
    digits = 6
    if sys.stdout.isatty() and kind in ON_TERMINAL:
        shown, digits = [field for field in ON_TERMINAL[kind] if field in shown], 4
    _print_table(shown, [[_text(getattr(row, field), digits) for field in shown] for row in rows])


def _print_record(row: Row) -> None:
    values = {field: _text(getattr(row, field), digits=15) for field in type(row).model_fields}
    ordered = [field for field in values if field not in ("as_of", *LONG)] + ["as_of", *LONG]
    _print_table(["field", "value"], [[field, values[field]] for field in ordered if values[field]])


def _print_dropped(rows: Iterable[Row]) -> None:
    fields = ("rule", "cloud", "region", "zone", "instance_type", "mode", "usd_per_node_h", "reason")
    lines = [[_text(getattr(row, field)) for field in fields] for row in rows]
    _print_table(list(fields), sorted(lines), title="Listed prices that are not used")


def _print_table(columns: Cells, rows: Iterable[Cells], title: str = "") -> None:
    """A table that fits a terminal; away from one, plain columns with nothing cut or wrapped."""
    from trainplan.cli.output import print_text

    lines = list(rows)
    print_text(lambda width, colour, ascii_only: _render(columns, lines, title, width, colour, ascii_only))


def _render(
    columns: Cells, rows: Sequence[Cells], title: str, width: int | None, colour: bool, ascii_only: bool
) -> str:
    heading = f"{title} ({len(rows)})\n" if title else ""
    if width is None:
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (columns, *rows))
        return heading + "".join(line.rstrip() + "\n" for line in lines) + "\n" * bool(title)
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    style = box.ASCII if ascii_only else box.SIMPLE_HEAD
    table = Table(*columns, box=style, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="auto" if colour else None,
        legacy_windows=False,
    )
    console.print(table)
    return heading + stream.getvalue()
