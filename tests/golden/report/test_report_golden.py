"""Whole reports, character by character. ``TRAINPLAN_REGOLD=1`` rewrites them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trainplan import report
from trainplan_models.plan import Plan

HERE = Path(__file__).parent

FORMS: dict[str, Callable[[Plan], str]] = {
    "md": report.markdown,
    "piped.txt": report.terminal,
    "narrow.txt": partial(report.terminal, width=80),
    "ascii.txt": partial(report.terminal, width=160, ascii_only=True),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["full", "bare"])
def test_report(name: str, form: str) -> None:
    plan = Plan.model_validate_json((HERE / f"{name}.plan.json").read_text(encoding="utf-8"))
    text = FORMS[form](plan)
    golden = HERE / f"{name}.{form}"
    if os.environ.get("TRAINPLAN_REGOLD") == "1":
        golden.write_text(text, encoding="utf-8", newline="\n")
    assert text == golden.read_text(encoding="utf-8")
