"""The one way to HiGHS: a Pyomo model compiled to arrays and solved in a process that can be killed.

Pyomo's own interfaces are not used: they lose incumbents at a time limit, swallow HiGHS' errors and
ignored coefficients, and deadlock in threads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from select import select
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from trainplan.highs_worker import STOP, Answer, MatrixModel, Request, read_message
from trainplan_models.base import NoAnswerError

if TYPE_CHECKING:
    from trainplan.pyomo_core import ConcreteModel

LOAD_LIMIT_S = 60.0
GRACE_S = 10.0
"""How long past its time limit a solve may go on before its process is killed."""
STOPPED_LIMIT_S = 3.0
"""Time for a solve after the user has asked for what there is."""


def check_version(installed: str) -> None:
    """Refuses the HiGHS releases that are known to return wrong optima.

    Raises:
        NoAnswerError: highspy is older than 1.15.1 (1.14.0 calls wrong points optimal, with gap 0).
    """
    parts = tuple(int(part) for part in re.findall(r"\d+", installed)[:3])
    if parts < (1, 15, 1):
        raise NoAnswerError(
            f"highspy {installed} is known to return wrong answers marked optimal; "
            "install highspy >= 1.15.1 (pip install -U 'highspy>=1.15.1')"
        )


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Pyomo model as arrays, with the way back from a column to its variable's name."""

    model: MatrixModel
    columns: Mapping[str, int]
    """Column of each variable by Pyomo name; variables that occur nowhere have none."""
    rows: Mapping[str, int]
    """Row of each constraint without an index by Pyomo name."""

    def value(self, x: np.ndarray[Any, Any], name: str) -> float:
        """Value of a variable; one that occurs nowhere is 0."""
        column = self.columns.get(name)
        return 0.0 if column is None else float(x[column])

    def vector(self, expression: Any) -> tuple[np.ndarray[Any, np.dtype[Any]], float]:
        """Coefficient of each column in a linear expression of the Pyomo model, and its constant."""
        from trainplan.pyomo_core import generate_standard_repn

        repn = generate_standard_repn(expression)
        found = np.zeros(len(self.model.cost))
        for variable, coefficient in zip(repn.linear_vars, repn.linear_coefs, strict=True):
            column = self.columns.get(variable.name)
            if column is not None:
                found[column] += coefficient
        return found, float(repn.constant)


def compile_model(model: ConcreteModel) -> Compiled:
    """Compiles a Pyomo model with one active objective.

    Raises:
        NoAnswerError: a coefficient lies outside what HiGHS answers reliably (1e-9..1e8).
    """
    from trainplan.pyomo_core import LinearStandardFormCompiler

    form = LinearStandardFormCompiler().write(model, mixed_form=True, set_sense=None)
    matrix = form.A.tocsr()
    rhs = np.asarray(form.rhs, dtype=float)
    sense = np.fromiter((row.bound_type for row in form.rows), int, len(form.rows))
    bounds = [variable.bounds for variable in form.columns]
    arrays = MatrixModel(
        cost=np.asarray(form.c.todense(), dtype=float).ravel(),
        offset=float(form.c_offset[0]),
        col_lower=np.array([-np.inf if low is None else low for low, _ in bounds]),
        col_upper=np.array([np.inf if high is None else high for _, high in bounds]),
        integer=np.array([not variable.is_continuous() for variable in form.columns], dtype=bool),
        start=matrix.indptr.astype(np.int32),
        index=matrix.indices.astype(np.int32),
        value=matrix.data.astype(float),
        row_lower=np.where(sense == 1, -np.inf, rhs),
        row_upper=np.where(sense == -1, np.inf, rhs),
    )
    _check_scale(arrays)
    scalar = [
        (row.constraint, number)
        for number, row in enumerate(form.rows)
        if row.constraint is row.constraint.parent_component()
    ]
    rows = {constraint.name: number for constraint, number in reversed(scalar)}
    return Compiled(arrays, {v.name: j for j, v in enumerate(form.columns)}, rows)


def _check_scale(model: MatrixModel) -> None:
    """Guards the range outside of which HiGHS silently ignores or mishandles numbers."""
    magnitudes = np.abs(np.append(model.value, model.cost))
    magnitudes = magnitudes[magnitudes != 0.0]
    bounds = np.concatenate([model.row_lower, model.row_upper, model.col_lower, model.col_upper])
    if np.isnan(magnitudes).any() or np.isnan(bounds).any():
        raise NoAnswerError("the case leads to a model with undefined numbers (nan)")
    least, most = magnitudes.min(initial=np.inf), magnitudes.max(initial=0.0)
    largest = np.abs(bounds[np.isfinite(bounds)]).max(initial=0.0)
    if least < 1e-9 or most > 1e8 or largest > 1e8:
        raise NoAnswerError(
            "the case leads to a model whose numbers span too wide a range to be solved reliably "
            f"(coefficients {least:.1e}..{most:.1e}, bounds up to {largest:.1e})"
        )


class Session:
    """A worker process with one model loaded; any number of solves, each of which may be killed.

    Args:
        keep_best: whether Ctrl-C ends the solve that is going on with what it has found, and leaves little
            time to later ones, so that there is a plan; a second Ctrl-C, or one outside a solve, ends the
            program as ever.
    """

    def __init__(self, *, keep_best: bool = False) -> None:
        check_version(version("highspy"))
        self._process = self._start()
        self._model: MatrixModel | None = None
        self._keep_best = keep_best
        self.stopped = False
        """Whether the user wants what there is."""
        self.watch: Callable[[float, float], None] | None = None
        """Told the best objective so far and the bound, while a model is solved for its own objective."""

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "trainplan.highs_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker process."""
        self._process.kill()
        self._process.communicate()

    @property
    def model(self) -> MatrixModel | None:
        """The model that is loaded; None before the first one."""
        return self._model

    def load(self, model: MatrixModel) -> None:
        """Hands a model to the worker.

        Raises:
            NoAnswerError: HiGHS refused or ignored a part of it.
        """
        self._model = None
        try:
            complaints = self._call("load", model, LOAD_LIMIT_S)
        except TimeoutError as error:
            self._restart()
            raise NoAnswerError(f"HiGHS took more than {LOAD_LIMIT_S:g} s to read the model") from error
        if complaints:
            raise NoAnswerError("HiGHS did not take the model as it is: " + "; ".join(complaints[:3]))
        self._model = model

    def solve(self, request: Request, time_limit_s: float, grace_s: float = GRACE_S) -> Answer:
        """Solves the loaded model under the changes of ``request``.

        A solve that outlives its limit is killed; its answer has status ``time-limit`` and no ``x``.

        Raises:
            NoAnswerError: HiGHS failed, or says that it ignored a part of the model.
        """
        time_limit_s = min(time_limit_s, STOPPED_LIMIT_S) if self.stopped else time_limit_s
        options = {"time_limit": float(time_limit_s)} | request.options
        started = time.monotonic()
        try:
            watch = self.watch if request.cost is None else None
            answer: Answer = self._call(
                "solve", _with_options(request, options), time_limit_s + grace_s, watch
            )
        except TimeoutError:
            self._restart()
            seconds = time.monotonic() - started
            return Answer("time-limit", None, None, 0, seconds, None, (), version("highspy"))
        if answer.errors:
            raise NoAnswerError("HiGHS reports: " + "; ".join(answer.errors[:3]))
        return answer

    def _restart(self) -> None:
        self.close()
        self._process = self._start()
        if self._model is not None:
            self._call("load", self._model, LOAD_LIMIT_S)

    def _call(
        self, name: str, payload: object, limit_s: float, watch: Callable[[float, float], None] | None = None
    ) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise NoAnswerError("the solver process has no pipes")
        try:
            pickle.dump((name, payload), stdin)
            stdin.flush()
            state, reply = self._reply(stdout, limit_s, watch)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            # The next question gets a new process; a model that ends it while being read is not kept.
            self._restart()
            raise NoAnswerError("the solver process ended unexpectedly (out of memory?)") from error
        except KeyboardInterrupt:
            with contextlib.suppress(OSError):
                self.close()
            raise
        if state == "error":
            raise NoAnswerError(str(reply))
        return reply

    def _reply(
        self, stdout: IO[bytes], limit_s: float, watch: Callable[[float, float], None] | None
    ) -> tuple[str, Any]:
        """The answer to a request; ``watch`` is told what comes before it."""
        until = time.monotonic() + limit_s
        while True:
            self._wait(stdout, max(until - time.monotonic(), 0.0))
            state, reply = read_message(stdout.fileno())
            if state != "so far":
                return state, reply
            if watch is not None:
                watch(*reply)

    def _wait(self, stdout: IO[bytes], limit_s: float) -> None:
        """Until there is an answer.

        Raises:
            TimeoutError: there is none within the limit.
        """
        try:
            ready = select([stdout], [], [], limit_s)[0]
        except KeyboardInterrupt:
            if self.stopped or not self._keep_best:
                raise
            self.stopped = True
            self._process.send_signal(STOP)
            ready = select([stdout], [], [], min(limit_s, STOPPED_LIMIT_S + GRACE_S))[0]
        if not ready:
            raise TimeoutError


def _with_options(request: Request, options: dict[str, Any]) -> Request:
    from dataclasses import replace

    return replace(request, options=options)
