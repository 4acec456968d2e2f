"""A long module or function is two things in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

LONGEST_MODULE = 400
LONGEST_FUNCTION = 50


def sources(checkout: Path) -> Iterator[tuple[str, str]]:
    for root in ("solver/trainplan", "models/trainplan_models"):
        for path in sorted((checkout / root).rglob("*.py")):
            yield str(path.relative_to(checkout)), path.read_text(encoding="utf-8")


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    first = function.body[0]
    told = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if told else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_no_module_is_too_long(checkout: Path) -> None:
    long = {
        name: lines for name, text in sources(checkout) if (lines := len(text.splitlines())) > LONGEST_MODULE
    }
    assert not long


def test_no_function_is_too_long(checkout: Path) -> None:
    long = {
        f"{name}:{node.lineno} {node.name}": lines
        for name, text in sources(checkout)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := body_lines(node)) > LONGEST_FUNCTION
    }
    assert not long
