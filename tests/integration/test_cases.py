"""Every case that ships is solved, verified and compared with the answer beside it.

``TRAINPLAN_REGOLD=1`` rewrites the numbers of the expected answers (never their reasons).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from trainplan.planning import plan
from trainplan.scenarios import for_plan
from trainplan_models.base import InfeasibleError
from trainplan_models.casefile import load_case
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan
from trainplan_models.simulation import simulate

CASES = Path(__file__).parents[2] / "cases"
FILES = sorted(CASES.glob("*.yaml"))
LARGEST_GAP_FRAC = 0.005
DAY_S = 86400.0


def expected_of(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(path.with_suffix(".expected.json").read_text(encoding="utf-8"))
    return answer


def answer_of(found: Plan) -> dict[str, Any]:
    """What a plan decides, in numbers that fit on a page."""
    return {
        "exit": 0,
        "total_usd": round(found.total_usd, 2),
        "finish_days": round(found.finish_s / DAY_S, 3),
        "segments": [
            f"{s.task}: {s.nodes}+{s.spare_nodes} x {s.pool} {s.mode} {s.work_frac:.3f}"
            for s in found.segments
        ],
        "purchases": [f"{p.count} x {p.nodes} {p.pool} {p.mode}" for p in found.purchases],
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_case_has_its_expected_answer(path: Path) -> None:
    expected = expected_of(path)
    case = load_case(path)
    if expected["exit"] == 3:
        with pytest.raises(InfeasibleError) as caught:
            plan(case, builtin(), compare=False)
        for words in expected["says"]:
            assert words in str(caught.value)
        return
    found = plan(case, builtin(), compare=False)
    if os.environ.get("TRAINPLAN_REGOLD"):
        kept = {key: expected[key] for key in ("happened_days", "reason") if key in expected}
        text = json.dumps(answer_of(found) | kept, indent=2, ensure_ascii=False)
        path.with_suffix(".expected.json").write_text(text + "\n", encoding="utf-8")
        return
    assert found.status == "optimal"
    assert found.solver.gap_frac <= LARGEST_GAP_FRAC
    assert found.total_usd == pytest.approx(expected["total_usd"], rel=1e-3)
    assert found.finish_s / DAY_S == pytest.approx(expected["finish_days"], rel=1e-2)
    assert answer_of(found)["segments"] == expected["segments"]
    assert answer_of(found)["purchases"] == expected["purchases"]
    assert expected["reason"], "an expected answer says why it is right"


HAPPENED = [path for path in FILES if "happened_days" in expected_of(path)]


@pytest.mark.parametrize("path", HAPPENED, ids=lambda path: path.stem)
def test_what_happened_lies_in_the_spread_that_is_told(path: Path) -> None:
    case, known = load_case(path), builtin()
    found = plan(case, known, compare=False)
    assert found.risk is not None
    days = simulate(found, case, known, for_plan(found, case, known, 10_000, 2), 2).finish_quantiles_s
    low, middle, high = (days[name] / DAY_S for name in ("p10", "p50", "p90"))
    assert found.risk.finish_p90_s / DAY_S == pytest.approx(high, rel=0.02)
    for happened in expected_of(path)["happened_days"]:
        assert low < happened < high
    comment = " ".join(line[1:] for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#")
    told = [float(day) for day in re.findall(r"by\s+day (\d+)", comment)]
    assert told == pytest.approx([low, middle, high], rel=0.03)
    assert {"bloom-176b", "opt-175b"} <= {path.stem for path in HAPPENED}


def test_every_case_has_an_answer_and_every_answer_a_case() -> None:
    stems = {path.stem for path in FILES}
    answers = {path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json")}
    assert len(stems) >= 8
    assert stems == answers
