"""HiGHS in a process of its own, so that a solve can always be killed.

HiGHS' presolve does not honour a time limit, and a native library cannot be stopped from Python; a
process can. The worker holds one loaded model and answers requests read from standard input, each one
pickled tuple; so are the replies, behind their length, as there may be several to a request. Only numpy
and highspy are imported here, so the worker is ready while its parent still builds the model.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TELL_EVERY_S = 1.0
LENGTH_BYTES = 8
READ_BYTES = 1 << 20
STOP = signal.SIGUSR1
"""Tells the worker to end its solve with what it has."""


@dataclass(frozen=True, slots=True)
class MatrixModel:
    """A mixed-integer model as arrays: ``min c x + offset``, ``row_lower <= A x <= row_upper``.

    ``A`` is row-wise compressed: ``start`` (rows + 1), ``index``, ``value``.
    """

    cost: Array
    offset: float
    col_lower: Array
    col_upper: Array
    integer: Array
    """Boolean per column."""
    start: Array
    index: Array
    value: Array
    row_lower: Array
    row_upper: Array


@dataclass(frozen=True, slots=True)
class Request:
    """One solve of the loaded model with temporary changes; they are undone afterwards."""

    cost: Array | None = None
    """Another objective (dense); None for the model's own."""
    offset: float = 0.0
    columns: Array | None = None
    """Indices of columns whose bounds change."""
    col_lower: Array | None = None
    col_upper: Array | None = None
    rows: Array | None = None
    row_lower: Array | None = None
    row_upper: Array | None = None
    start: Array | None = None
    """A full solution to start from."""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """Why the solver stopped (``status``) and what it has (``x``), which are two things."""

    status: str
    objective: float | None
    bound: float | None
    nodes: int
    seconds: float
    x: Array | None
    errors: tuple[str, ...]
    """Log lines in which HiGHS says that it refused or ignored something."""
    version: str
    reduced_cost: Array | None = None
    """By column, where a linear program was solved."""


def _complaints(log: list[str]) -> tuple[str, ...]:
    text = "".join(log)
    marks = ("ERROR", "ignored", "treated as")
    return tuple(line.strip() for line in text.splitlines() if any(mark in line for mark in marks))


class Server:
    """The loop of the worker process.

    Args:
        tell: takes the objective of the best point so far and the bound, about once a second.
    """

    def __init__(self, tell: Callable[[float, float], None] = lambda best, bound: None) -> None:
        import highspy

        self.tell = tell
        self._told_at = 0.0

        self.highspy = highspy
        self.status_names = {
            highspy.HighsModelStatus.kOptimal: "optimal",
            highspy.HighsModelStatus.kInfeasible: "infeasible",
            highspy.HighsModelStatus.kUnbounded: "unbounded",
            highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible-or-unbounded",
            highspy.HighsModelStatus.kTimeLimit: "time-limit",
            highspy.HighsModelStatus.kSolutionLimit: "limit",
            highspy.HighsModelStatus.kInterrupt: "interrupted",
        }
        self.log: list[str] = []
        self.stopped = False
        self.model: MatrixModel | None = None
        self.highs: Any = None

    def _fresh(self, model: MatrixModel) -> Any:
        highspy = self.highspy
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", True)
        highs.setOptionValue("log_to_console", False)
        self.log.clear()
        highs.cbLogging += lambda event: self.log.append(event.message)
        for asked in (highs.cbMipInterrupt, highs.cbSimplexInterrupt, highs.cbIpmInterrupt):
            asked.subscribe(lambda event: event.interrupt(self.stopped))
        for found in (highs.cbMipImprovingSolution, highs.cbMipLogging):
            found.subscribe(self._tell)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(model.cost), len(model.row_lower)
        lp.col_cost_, lp.offset_ = model.cost, model.offset
        lp.col_lower_, lp.col_upper_ = model.col_lower, model.col_upper
        lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
        matrix = lp.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_, matrix.index_, matrix.value_ = model.start, model.index, model.value
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if flag else kinds.kContinuous for flag in model.integer]
        if highs.passModel(lp) == highspy.HighsStatus.kError:
            raise ValueError("HiGHS refused the model: " + "".join(self.log)[-400:])
        return highs

    def load(self, model: MatrixModel) -> tuple[str, ...]:
        """Takes a model over; returns what HiGHS complained about while reading it."""
        self.model = model
        self.highs = self._fresh(model)
        return _complaints(self.log)

    def _change(self, request: Request) -> None:
        highs = self.highs
        if request.cost is not None:
            indices = np.arange(len(request.cost), dtype=np.int32)
            highs.changeColsCost(len(indices), indices, request.cost)
            highs.changeObjectiveOffset(request.offset)
        if request.columns is not None:
            index = request.columns.astype(np.int32)
            highs.changeColsBounds(len(index), index, request.col_lower, request.col_upper)
        if request.rows is not None and request.row_lower is not None and request.row_upper is not None:
            for row, low, high in zip(request.rows, request.row_lower, request.row_upper, strict=True):
                highs.changeRowBounds(int(row), float(low), float(high))

    def _tell(self, event: Any) -> None:
        best, bound = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
        if np.isfinite([best, bound]).all() and time.monotonic() - self._told_at > TELL_EVERY_S:
            self._told_at = time.monotonic()
            self.tell(best, bound)

    def stop(self, *_: object) -> None:
        """Ends the solve that is going on with what it has."""
        self.stopped = True

    def solve(self, request: Request) -> Answer:
        """Solves the loaded model once under the request's changes."""
        if self.model is None:
            raise ValueError("no model is loaded")
        error = self.highspy.HighsStatus.kError
        returned = self._run(self.model, request)
        if returned == error and request.options.get("presolve") != "off":
            # HiGHS has failed to undo its own presolve on sound models.
            returned = self._run(self.model, replace(request, options=request.options | {"presolve": "off"}))
        # Not before: the word to stop may come before the solve has begun.
        self.stopped = False
        if returned == error:
            raise ValueError("HiGHS failed: " + "".join(self.log)[-400:])
        return self._answer()

    def _run(self, model: MatrixModel, request: Request) -> Any:
        # Changed models are solved from a clean copy: HiGHS keeps the last solution as a hidden
        # start, and the same question must get the same plan whatever was asked before.
        self.highs = self._fresh(model)
        self._change(request)
        options = {"threads": 1, "random_seed": 0, "mip_rel_gap": 1e-4} | request.options
        for name, value in options.items():
            if self.highs.setOptionValue(name, value) != self.highspy.HighsStatus.kOk:
                raise ValueError(f"HiGHS refused the option {name}={value!r}")
        if request.start is not None:
            solution = self.highspy.HighsSolution()
            solution.col_value = request.start
            self.highs.setSolution(solution)
        return self.highs.run()

    def _answer(self) -> Answer:
        highs, highspy = self.highs, self.highspy
        status = highs.getModelStatus()
        info = highs.getInfo()
        # The point that proves a model unbounded is no answer to it.
        has_solution = info.primal_solution_status == 2 and status != highspy.HighsModelStatus.kUnbounded
        is_mip = bool(self.model is not None and self.model.integer.any())
        objective = info.objective_function_value if has_solution else None
        bound = info.mip_dual_bound if is_mip else objective
        return Answer(
            status=self.status_names.get(status, str(status.name)),
            objective=objective,
            bound=bound if bound is not None and np.isfinite(bound) else None,
            nodes=max(int(info.mip_node_count), 0),
            seconds=highs.getRunTime(),
            x=np.array(highs.getSolution().col_value) if has_solution else None,
            errors=_complaints(self.log),
            version=f"{highspy.HIGHS_VERSION_MAJOR}.{highspy.HIGHS_VERSION_MINOR}.{highspy.HIGHS_VERSION_PATCH}",
            reduced_cost=np.array(highs.getSolution().col_dual) if info.dual_solution_status == 2 else None,
        )


def read_message(descriptor: int) -> Any:
    """The next reply. Nothing behind it is read, so that waiting for the descriptor tells of the one after.

    Raises:
        EOFError: the worker ended before all of it was there.
    """
    length = int.from_bytes(_exactly(descriptor, LENGTH_BYTES), "little")
    return pickle.loads(_exactly(descriptor, length))


def _exactly(descriptor: int, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = os.read(descriptor, min(count - len(found), READ_BYTES))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def main() -> None:
    """Reads requests from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(STOP, signal.SIG_IGN)
    # HiGHS prints a banner to C stdout before any option can stop it; the protocol keeps the real one.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(message: object) -> None:
        body = pickle.dumps(message)
        out.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)
        out.flush()

    server = Server(lambda best, bound: say(("so far", (best, bound))))
    signal.signal(STOP, server.stop)
    while True:
        try:
            name, payload = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = ("ok", getattr(server, name)(payload))
        except ValueError as error:
            reply = ("error", str(error))
        say(reply)


if __name__ == "__main__":
    # Classes must pickle under their importable name, not under __main__.
    from trainplan import highs_worker

    highs_worker.main()
