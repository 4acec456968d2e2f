"""The adapter to HiGHS: what it refuses, and what it does when a solve goes wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from select import select
from typing import Any

import numpy as np
import pytest
from pyomo.environ import ConcreteModel, Constraint, NonNegativeIntegers, NonNegativeReals, Objective, Var
from tests.unit.highs_models import matrix_model, small

from trainplan import highs
from trainplan.highs import Session, check_version, compile_model
from trainplan.highs_worker import MatrixModel, Request
from trainplan_models.base import NoAnswerError


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session() as opened:
        yield opened


@pytest.mark.parametrize("installed", ["0.9", "1.7.2", "1.13.1", "1.14.0", "1.15", "1.15.0"])
def test_releases_that_return_wrong_optima_are_refused(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    with pytest.raises(NoAnswerError, match=re.escape(installed) + ".*1.15.1"):
        check_version(installed)
    monkeypatch.setattr(highs, "version", lambda _: installed)
    with pytest.raises(NoAnswerError):
        Session()


@pytest.mark.parametrize("installed", ["1.15.1", "1.15.1.post1", "1.16.0", "1.16.0rc1", "1.100.0", "2.0"])
def test_later_releases_are_accepted(installed: str) -> None:
    check_version(installed)


def pyomo_model(
    coefficient: float = 1.0, upper: float = 10.0, cost: float = 1.0, least: float = 2.0
) -> ConcreteModel:
    m = ConcreteModel()
    m.x = Var(within=NonNegativeReals, bounds=(0.0, upper))
    m.n = Var(within=NonNegativeIntegers, bounds=(0, 5))
    m.c_least = Constraint(expr=coefficient * m.x + m.n >= least)
    m.o = Objective(expr=cost * m.x + 3.0 * m.n)
    return m


@pytest.mark.parametrize(
    "change",
    [
        {"coefficient": 1e-10},
        {"coefficient": 2e8},
        {"upper": 1e9},
        {"upper": 1e20},
        {"cost": 1e-10},
        {"cost": 1e9},
        {"least": -6.3e20},
        {"coefficient": nan},
        {"cost": nan},
    ],
)
def test_models_outside_the_reliable_range_are_refused(change: dict[str, float]) -> None:
    compile_model(pyomo_model())
    with pytest.raises((NoAnswerError, ValueError), match="range|nan"):
        compile_model(pyomo_model(**change))


@pytest.mark.parametrize(
    "model",
    [
        matrix_model([1, 1], [[1e-10, 1]], [(1, inf)], [(0, 10)] * 2, "ii"),
        matrix_model([1, 1], [[1e16, 1]], [(1, inf)], [(0, 10)] * 2, "ii"),
        matrix_model([1, 1], [[1, 1]], [(6.3e20, inf)], [(0, inf)] * 2, "ic"),
        matrix_model([1, 1], [[1, 1]], [(-inf, 1e20)], [(0, 10)] * 2, "ii"),
        matrix_model([1e30, 1], [[1, 1]], [(1, inf)], [(0, 10)] * 2, "ii"),
        matrix_model([1, 1], [[1, 1]], [(1, inf)], [(1e21, inf), (0, 10)], "cc"),
    ],
    ids=["tiny coefficient", "huge coefficient", "row lower", "row upper", "cost", "column lower"],
)
def test_what_highs_would_ignore_is_an_error(session: Session, model: MatrixModel) -> None:
    with pytest.raises(NoAnswerError):
        session.load(model)
    assert session.model is None
    session.load(small())
    assert session.solve(Request(), 10.0).objective == pytest.approx(9.0)


@pytest.mark.parametrize(
    "request_",
    [
        Request(columns=np.array([0]), col_lower=np.array([1e21]), col_upper=np.array([inf])),
        Request(rows=np.array([0]), row_lower=np.array([1e21]), row_upper=np.array([inf])),
        Request(options={"nonsense": 1}),
        Request(options={"MIPGap": 0.1}),
        Request(options={"mip_rel_gap": -1.0}),
        Request(options={"presolve": "perhaps"}),
        Request(options={"threads": 1.5}),
    ],
)
def test_changes_and_options_that_highs_does_not_take_are_errors(session: Session, request_: Request) -> None:
    session.load(small())
    with pytest.raises(NoAnswerError):
        session.solve(request_, 10.0)
    assert session.solve(Request(), 10.0).objective == pytest.approx(9.0)


def test_a_question_without_a_model_is_an_error() -> None:
    with Session() as fresh, pytest.raises(NoAnswerError, match="no model"):
        fresh.solve(Request(), 1.0)


def test_changes_last_for_one_solve(session: Session) -> None:
    session.load(small())
    plain = session.solve(Request(), 10.0)
    changed = session.solve(
        Request(
            cost=np.array([4.0, 3.0]),
            offset=100.0,
            columns=np.array([1]),
            col_lower=np.array([0.0]),
            col_upper=np.array([3.0]),
            rows=np.array([0]),
            row_lower=np.array([5.0]),
            row_upper=np.array([inf]),
            options={"mip_rel_gap": 0.5},
        ),
        10.0,
    )
    assert changed.objective == pytest.approx(117.0)
    again = session.solve(Request(), 10.0)
    assert again.objective == plain.objective == pytest.approx(9.0)
    assert again.x is not None and plain.x is not None and (again.x == plain.x).all()


@pytest.mark.parametrize("start", [[4.5, 0.0], [0.0, 5.0], [0.0, 0.0]])
def test_a_start_does_not_change_the_answer(session: Session, start: list[float]) -> None:
    session.load(small())
    answer = session.solve(Request(start=np.array(start)), 10.0)
    assert answer.status == "optimal"
    assert answer.objective == pytest.approx(9.0)


@pytest.mark.parametrize("integer", ["cc", "ii"])
def test_no_solution_and_no_bound_are_told_apart(session: Session, integer: str) -> None:
    without_end = matrix_model([-1, 1], [[1, 1]], [(1, inf)], [(0, inf), (0, 10)], integer)
    without_point = matrix_model([-1, 1], [[1, 1]], [(7, inf)], [(0, 3), (0, 3)], integer)
    for model, status in ((without_end, "unbounded"), (without_point, "infeasible")):
        session.load(model)
        answer = session.solve(Request(options={"presolve": "off"}), 10.0)
        assert (answer.status, answer.x, answer.objective) == (status, None, None)


def hard() -> MatrixModel:
    """Market split: nobody finds a solution of 4 such equalities in a moment, or that there is none."""
    random = np.random.default_rng(3)
    rows = random.integers(1, 100, (4, 40)).astype(float)
    half = np.floor(rows.sum(axis=1) / 2.0)
    slack = np.hstack([np.eye(4), -np.eye(4)])
    return matrix_model(
        [0.0] * 40 + [1.0] * 8,
        np.hstack([rows, slack]).tolist(),
        [(value, value) for value in half],
        [(0, 1)] * 40 + [(0, 1000)] * 8,
        "i" * 40 + "c" * 8,
    )


@pytest.mark.parametrize(("options", "limit_s"), [({}, 0.2), ({}, 0.0), ({"mip_max_nodes": 5}, 10.0)])
def test_an_answer_cut_short_is_never_optimal(
    session: Session, options: dict[str, float], limit_s: float
) -> None:
    session.load(hard())
    answer = session.solve(Request(options=options), limit_s)
    assert answer.status in ("time-limit", "limit")
    if answer.x is not None:
        assert answer.bound is not None and answer.objective is not None
        assert answer.bound < answer.objective


def test_a_solve_that_ignores_its_limit_is_killed_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(highs, "GRACE_S", 0.3)
    with Session() as own:
        own.load(small())
        stuck = own._process
        os.kill(stuck.pid, signal.SIGSTOP)
        answer = own.solve(Request(), 0.1)
        assert (answer.status, answer.x, answer.objective, answer.bound) == ("time-limit", None, None, None)
        assert stuck.returncode == -signal.SIGKILL
        monkeypatch.undo()
        assert own.solve(Request(), 10.0).objective == pytest.approx(9.0)


def test_a_model_that_is_never_read_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "LOAD_LIMIT_S", 0.3)
    with Session() as own:
        os.kill(own._process.pid, signal.SIGSTOP)
        with pytest.raises(NoAnswerError, match="to read the model"):
            own.load(small())
        monkeypatch.undo()
        own.load(small())
        assert own.solve(Request(), 10.0).objective == pytest.approx(9.0)


def test_a_worker_that_dies_is_no_answer_and_the_next_one_works() -> None:
    with Session() as own:
        own.load(small())
        own._process.kill()
        own._process.wait()
        with pytest.raises(NoAnswerError, match="ended unexpectedly"):
            own.solve(Request(), 10.0)
        assert own.solve(Request(), 10.0).objective == pytest.approx(9.0)
        with pytest.raises(NoAnswerError, match="ended unexpectedly"):
            own.load("not a model")  # type: ignore[arg-type]
        own.load(small(5.5))
        assert own.solve(Request(), 10.0).objective == pytest.approx(11.0)


@pytest.mark.parametrize("said", [b"", b"\x80\x04\x95\xff\x00\x00\x00\x00\x00\x00\x00"])
def test_half_an_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: bytes) -> None:
    stub = tmp_path / "stub.py"
    stub.write_text(
        f"import pickle, sys\npickle.load(sys.stdin.buffer)\nsys.stdout.buffer.write({said!r})\n",
        encoding="utf-8",
    )

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(stub)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(Session, "_start", staticmethod(start))
    with Session() as own, pytest.raises(NoAnswerError, match="ended unexpectedly"):
        own.load(small())


def test_an_answer_right_behind_the_word_on_how_far_it_is_is_not_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub = tmp_path / "stub.py"
    stub.write_text(
        "import pickle, sys\n"
        "pickle.load(sys.stdin.buffer)\n"
        "replies = [pickle.dumps(reply) for reply in [('so far', (2.0, 1.0)), ('ok', ())]]\n"
        "sys.stdout.buffer.write(b''.join(len(one).to_bytes(8, 'little') + one for one in replies))\n"
        "sys.stdout.buffer.flush()\n"
        "sys.stdin.buffer.read()\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(
        Session,
        "_start",
        staticmethod(
            lambda: subprocess.Popen(
                [sys.executable, str(stub)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        ),
    )
    monkeypatch.setattr(highs, "LOAD_LIMIT_S", 5.0)
    with Session() as own:
        own.load(small())
        assert own.model is not None


def test_ctrl_c_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Session() as own:
        own.load(small())
        monkeypatch.setattr(highs, "select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.solve(Request(), 10.0)
        assert own._process.poll() is not None


def test_a_search_tells_how_far_it_is_and_only_for_the_model_s_own_objective() -> None:
    told: list[tuple[float, float]] = []
    with Session() as own:
        own.watch = lambda best, bound: told.append((best, bound))
        own.load(hard())
        answer = own.solve(Request(), 3.0)
        assert told
        assert all(bound <= best for best, bound in told)
        assert answer.objective is not None and min(best for best, _ in told) >= answer.objective
        told.clear()
        own.solve(Request(cost=np.ones(48)), 3.0)
        assert not told


def test_ctrl_c_gives_what_was_found_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = select

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(highs, "select", real)
        time.sleep(1.0)
        raise KeyboardInterrupt

    with Session(keep_best=True) as own:
        own.load(hard())
        monkeypatch.setattr(highs, "select", interrupted)
        answer = own.solve(Request(), 30.0)
        assert (answer.status, own.stopped) == ("interrupted", True)
        assert answer.x is not None and answer.seconds < 10.0
        assert answer.bound is not None and answer.objective is not None and answer.bound < answer.objective
        later = own.solve(Request(), 30.0)
        assert later.status == "time-limit"
        assert later.seconds == pytest.approx(highs.STOPPED_LIMIT_S, abs=1.0)
        monkeypatch.setattr(highs, "select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.solve(Request(), 10.0)


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with Session() as own:
        own.load(small())
        own.solve(Request(), 10.0)
        with pytest.raises(NoAnswerError):
            own.solve(Request(options={"nonsense": 1}), 10.0)
    assert capfd.readouterr() == ("", "")


def test_compiling_keeps_rows_bounds_kinds_and_constants() -> None:
    m = ConcreteModel()
    m.x = Var([0, "a,b"], bounds=(-1.0, 4.0))
    m.n = Var(within=NonNegativeIntegers)
    m.unused = Var(within=NonNegativeReals)
    m.c_between = Constraint(expr=(1.0, m.x[0] + 2.0 * m.n, 6.0))
    m.c_equal = Constraint(expr=m.x["a,b"] - m.n + 0.5 == 2.0)
    m.o = Objective(expr=3.0 * m.x[0] + m.n + 7.0)
    compiled = compile_model(m)
    model = compiled.model
    assert model.offset == 7.0
    assert set(compiled.columns) == {m.x[0].name, m.x["a,b"].name, "n"}
    x, n = compiled.columns["x[0]"], compiled.columns["n"]
    assert (model.cost[x], model.cost[n]) == (3.0, 1.0)
    assert (model.col_lower[x], model.col_upper[x], model.col_lower[n], model.col_upper[n]) == (-1, 4, 0, inf)
    assert (model.integer[x], model.integer[n]) == (False, True)
    equal = compiled.rows["c_equal"]
    assert (model.row_lower[equal], model.row_upper[equal]) == (1.5, 1.5)
    low = max(model.row_lower[row] for row in range(3) if row != equal)
    high = min(model.row_upper[row] for row in range(3) if row != equal)
    assert (low, high) == (1.0, 6.0)
    assert compiled.value(np.array([2.5, 2.5, 2.5]), "unused") == 0.0
    assert compiled.value(np.arange(3.0), "n") == n
