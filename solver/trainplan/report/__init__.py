"""Plan -> text. Every form of the report is made from one :class:`~trainplan.report.document.Document`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainplan.report.document import Document
    from trainplan_models.plan import Plan

__all__ = ["markdown", "terminal", "text_of"]


def markdown(plan: Plan) -> str:
    """The report as Markdown (UTF-8 text with pipe tables, ends in a newline).

    Raises:
        VerificationError: the cost lines of the plan do not add up to its total.
    """
    from trainplan.report.build import document
    from trainplan.report.render_markdown import render

    return render(document(plan))


def terminal(plan: Plan, *, width: int | None = None, colour: bool = False, ascii_only: bool = False) -> str:
    """The report as text for people; :func:`text_of` has the parameters.

    Raises:
        VerificationError: the cost lines of the plan do not add up to its total.
    """
    from trainplan.report.build import document

    return text_of(document(plan), width=width, colour=colour, ascii_only=ascii_only)


def text_of(
    document: Document, *, width: int | None = None, colour: bool = False, ascii_only: bool = False
) -> str:
    """A document as text for people.

    Args:
        width: columns of the terminal; tables that do not fit are printed as lists of names and values.
            None (a pipe, a file): as wide as it takes, one row a line, nothing broken or cut.
        colour: with ANSI colours.
        ascii_only: draw lines in ASCII; names keep their own letters.
    """
    from trainplan.report.render_terminal import render

    return render(document, width=width, colour=colour, ascii_only=ascii_only)
