"""Document -> Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainplan.report.document import Document, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~])")


def render(document: Document) -> str:
    """The report as Markdown with pipe tables."""
    blocks = [f"# {escape(document.title)}"]
    for section in document.sections:
        blocks.extend(_section(section))
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _section(section: Section) -> Iterator[str]:
    yield f"## {escape(section.title)}"
    if section.facts:
        yield "\n".join(f"- **{escape(name)}**: {escape(value)}" for name, value in section.facts)
    for paragraph in section.paragraphs:
        yield escape(paragraph)
    for table in section.tables:
        yield f"### {escape(table.title)}"
        yield _table(table)
        if table.note:
            yield escape(table.note)


def _table(table: Table) -> str:
    lines = [
        _row(tuple(column.name for column in table.columns)),
        "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|",
        *(_row(row) for row in table.rows),
    ]
    if table.total:
        lines.append(_row(table.total, bold=True))
    return "\n".join(lines)


def _row(cells: tuple[str, ...], *, bold: bool = False) -> str:
    escaped = (escape(cell) for cell in cells)
    return "| " + " | ".join(f"**{cell}**" if bold and cell else cell for cell in escaped) + " |"
