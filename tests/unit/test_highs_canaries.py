"""Models on which releases of HiGHS are known to have been wrong, and models with known answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
import pytest
from tests.unit.highs_models import matrix_model, small

from trainplan.highs import Session
from trainplan.highs_worker import Request


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session() as opened:
        yield opened


CANARIES = {
    "issue 3043": (small(), 9.0),
    "issue 2957": (matrix_model([1, 2], [[1, 1]], [(20.1, inf)], [(0, 20), (8, 20)], "ic"), 28.2),
    "issue 3073": (
        matrix_model(
            [100, 0.01, 0],
            [[1, 0, 1], [0, -1, 1], [0, -1, -1], [0, 0, 1], [0, 0, -1]],
            [(3, 3), (-inf, 0), (-inf, 0), (-inf, 3), (-inf, -0.45)],
            [(0, inf), (-inf, inf), (0, inf)],
            "cci",
        ),
        0.03,
    ),
    "issue 3094": (
        matrix_model(
            [0, 0, 0, 0, 10, 8],
            [
                [-1000, 0, 1, 0, 0, 0],
                [0, -1000, 0, 1, 0, 0],
                [0, 0, 1, 0, 1, 0],
                [0, 0, 0, 1, 0, 1],
                [1, 1, 0, 0, 0, 0],
            ],
            [(-inf, 0), (-inf, 0), (1000, 1000), (1000, 1000), (-inf, 1)],
            [(0, 1)] * 2 + [(0, 1000)] * 4,
            "iicccc",
        ),
        8000.0,
    ),
    "issue 2432": (
        matrix_model(
            [-93, 25, 17],
            [[-89, -40.7, -12], [-0.1, 77.2, -23.7], [-8.6, -6.5, 72.78]],
            [(3994.5, inf), (-4878.3, inf), (-4930, inf)],
            [(-100, 120), (-100, 10), (-100, 0)],
            "ici",
        ),
        -3777.5712435,
    ),
    "fixed charge, big-M 1e4": (
        matrix_model(
            [1, 2, 300, 100],
            [[1, 1, 0, 0], [1, 0, -1e4, 0], [0, 1, 0, -1e4]],
            [(137.5, inf), (-inf, 0), (-inf, 0)],
            [(0, inf), (0, inf), (0, 1), (0, 1)],
            "ccii",
        ),
        375.0,
    ),
    "equality with many digits": (
        matrix_model(
            [1, 1, 0],
            [[137.25, 911.125, 1]],
            [(2097.5123456789012, 2097.5123456789012)],
            [(0, 9), (0, 9), (0, 100)],
            "iic",
        ),
        4.0,
    ),
}


@pytest.mark.parametrize("presolve", ["choose", "off"])
@pytest.mark.parametrize("name", CANARIES)
def test_highs_solves_what_releases_got_wrong(session: Session, name: str, presolve: str) -> None:
    model, best = CANARIES[name]
    session.load(model)
    answer = session.solve(Request(options={"presolve": presolve}), 10.0)
    assert answer.status == "optimal"
    # 1e-6 is what an answer may break a row by.
    assert answer.objective == pytest.approx(best, rel=2e-6)
    assert answer.bound == pytest.approx(best, rel=1.1e-4)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3, 1e5])
def test_scaling_rows_within_the_allowed_range_changes_nothing(session: Session, factor: float) -> None:
    model = matrix_model(
        [310, 520, 470, 1.5],
        [[3 * factor, 5 * factor, 4.5 * factor, 0.01 * factor], [1, 1, 1, 0]],
        [(47.3 * factor, inf), (-inf, 12)],
        [(0, 6), (0, 6), (0, 6), (0, 300)],
        "iiic",
    )
    session.load(model)
    answer = session.solve(Request(), 10.0)
    # 4 of the second, 6 of the third and 30 of the last.
    whole = [
        310 * a + 520 * b + 470 * c + 150 * max(0.0, 47.3 - 3 * a - 5 * b - 4.5 * c)
        for a, b, c in product(range(7), repeat=3)
        if a + b + c <= 12 and 47.3 - 3 * a - 5 * b - 4.5 * c <= 3.0
    ]
    assert answer.objective == pytest.approx(min(whole), rel=1e-6)


def test_random_small_models_agree_with_enumeration(session: Session) -> None:
    random = np.random.default_rng(7)
    found = []
    for _ in range(60):
        rows = np.round(random.uniform(-9, 9, (3, 5)), 1)
        rows[rows == 0.0] = 0.1
        cost = np.round(random.uniform(-20, 20, 5), 1)
        upper = np.round(rows @ random.uniform(0, 3, 5) - random.uniform(0, 12, 3), 1)
        columns = [(0.0, 3.0)] * 4 + [(0.0, 5.0)]
        session.load(matrix_model(cost.tolist(), rows.tolist(), [(-inf, u) for u in upper], columns, "iiiic"))
        answer = session.solve(Request(), 10.0)
        best = inf
        for whole in product(range(4), repeat=4):
            left = (upper - rows[:, :4] @ whole) / rows[:, 4]
            low = max(0.0, *left[rows[:, 4] < 0.0], -inf)
            high = min(5.0, *left[rows[:, 4] > 0.0], inf)
            if low <= high:
                best = min(best, float(cost[:4] @ whole) + cost[4] * (low if cost[4] > 0.0 else high))
        found.append(best)
        assert (answer.status == "infeasible") == (best == inf)
        if best < inf:
            assert answer.objective == pytest.approx(best, rel=1e-4, abs=1e-5)
    assert 5 < sum(best == inf for best in found) < 40


def test_a_solve_error_in_presolve_is_got_over(session: Session) -> None:
    told = json.loads(Path(__file__).with_name("highs_solve_error.json").read_text(encoding="utf-8"))
    width = len(told["cost"])
    model = matrix_model(
        told["cost"],
        [[row.get(str(column), 0.0) for column in range(width)] for row, _, _ in told["rows"]],
        [(-inf if low is None else low, inf if high is None else high) for _, low, high in told["rows"]],
        [
            (low, inf if high is None else high)
            for low, high in zip(told["column_lower"], told["column_upper"], strict=True)
        ],
        told["integer"],
    )
    session.load(model)
    answer, plain = session.solve(Request(), 10.0), session.solve(Request(options={"presolve": "off"}), 10.0)
    assert answer.status == plain.status == "optimal"
    assert answer.objective == pytest.approx(plain.objective)
