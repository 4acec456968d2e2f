"""Many cases at once: planned on all cores or on a cluster, kept as they are finished, compared.

Every point is planned by itself from its own case, so the rows do not depend on how many workers there are
or in which order they finish. A point is known by everything its answer depends on; finished points are
lines in a file, and a sweep that is started again plans only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainplan._version import __version__
from trainplan.candidate_cache import CandidateCache
from trainplan.highs import Session
from trainplan.planning import plan
from trainplan.sweep_points import Point
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, Record
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import Catalog, builtin
from trainplan_models.catalog import load as load_catalog
from trainplan_models.plan import Plan

Status = Literal["ok", "unproven", "infeasible", "no-answer", "bad-input", "error"]
LASTING = frozenset({"ok", "infeasible", "bad-input"})
"""States that asking again does not change; the others are tried again."""
MOST_RESTARTS = 3
"""How often the points that were lost with a worker are handed out again."""


class Row(Record):
    """One point of a sweep and its answer."""

    key: str
    """Hash of everything the answer depends on."""
    name: str
    changes: dict[str, str]
    status: Status
    reason: str = ""
    total_usd: float | None = None
    """As planned."""
    expected_usd: float | None = None
    """Mean over simulated launches; None where the plan was not simulated."""
    finish_s: float | None = None
    tokens: float | None = None
    gap_frac: float | None = None
    chance_frac: float | None = None
    """Simulated chance of being done in time and in budget."""
    decision: tuple[str, ...] = ()
    """A line for each stretch of the plan and each purchase."""
    by_category_usd: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class CaseText:
    """The case that is varied, as it was written."""

    text: str
    file: str = "<case>"
    overrides: tuple[str, ...] = ()
    folder: Path | None = None

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> CaseText:
        """The case of a file."""
        return cls(path.read_text(encoding="utf-8-sig"), str(path), tuple(overrides), path.parent)

    def case(self, point: Point) -> Case:
        """The case of a point.

        Raises:
            InputError: with every mistake.
        """
        more = [f"{key}={value}" for key, value in point.changes]
        return case_from_text(self.text, self.file, [*self.overrides, *more], self.folder)


@dataclass(frozen=True, slots=True)
class Job:
    """A point as it is handed to a worker: plain data."""

    key: str
    point: Point
    case: dict[str, Any]
    catalog_directory: Path | None
    time_limit_s: float
    promise: bool


@dataclass(slots=True)
class Store:
    """Finished points, a JSON line each; without a file they are only kept in memory."""

    path: Path | None = None
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                row = Row.model_validate_json(line)
            except ValueError:
                continue  # the line an interrupted sweep left half-written
            self.rows[row.key] = row

    def known(self, key: str) -> Row | None:
        """The lasting row of a point."""
        row = self.rows.get(key)
        return row if row is not None and row.status in LASTING else None

    def add(self, row: Row) -> None:
        """Keeps a row, on disk before anything else is done."""
        self.rows[row.key] = row
        if self.path is not None:
            with self.path.open("a+b") as file:
                # Begin a new line where an interrupted sweep left half of one.
                file.seek(0, os.SEEK_END)
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
                file.write(row.model_dump_json().encode() + b"\n")


@dataclass(frozen=True, slots=True)
class How:
    """How a sweep is carried out; nothing of it changes a row."""

    workers: int = 0
    """Processes on this machine; 0 for one per core."""
    scheduler: str = ""
    """Address of a Dask scheduler, e.g. ``tcp://host:8786``."""
    time_limit_s: float = 60.0
    promise: bool = True
    """Whether each plan is simulated and tightened, as ``plan`` does."""


def what_if(
    case: CaseText,
    points: Sequence[Point],
    *,
    catalog_directory: Path | None = None,
    how: How | None = None,
    store: Store | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Plans every point of a sweep.

    Args:
        case: what is varied.
        points: the overrides of each point.
        catalog_directory: the user's own rows, laid over the catalogue.
        how: workers, limits.
        store: where finished points are kept and looked up.
        progress: called with a line of text as points are finished.

    Returns:
        A row for each point, in their order; a point without a plan has a row with its reason.

    Raises:
        InputError: the case itself is wrong, or the scheduler cannot be reached.
    """
    how, store, tell = how or How(), store or Store(), progress or (lambda _: None)
    rows: dict[int, Row] = {}
    jobs: dict[str, tuple[Job, list[int]]] = {}
    for number, point in enumerate(points):
        job = _job(case, point, catalog_directory, how)
        if isinstance(job, Row):
            rows[number] = job
        elif (known := store.known(job.key)) is not None:
            rows[number] = known
        else:
            jobs.setdefault(job.key, (job, []))[1].append(number)
    waiting = [job for job, _ in jobs.values()]
    for done, row in enumerate(_finished(waiting, how), start=1):
        store.add(row)
        for number in jobs[row.key][1]:
            rows[number] = row
        tell(f"{done:,} of {len(waiting):,} points")
    # Equal points share an answer, each under its own name.
    return [
        rows[number].model_copy(update={"name": point.name, "changes": dict(point.changes)})
        for number, point in enumerate(points)
    ]


def _job(case: CaseText, point: Point, directory: Path | None, how: How) -> Job | Row:
    try:
        data = case.case(point).canonical()
    except InputError as error:
        if not point.changes:
            raise
        reason = "; ".join(str(problem) for problem in error.problems)
        return Row(key="", name=point.name, changes=dict(point.changes), status="bad-input", reason=reason)
    # Rows kept when they told less are made again.
    said = [
        data,
        fingerprint(directory),
        __version__,
        how.promise,
        _model_files(data),
        list(Row.model_fields),
    ]
    key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return Job(key, point, data, directory, how.time_limit_s, how.promise)


def _model_files(data: dict[str, Any]) -> list[str]:
    """Contents of the model files that a case names."""
    names = [task["model"] for task in data["tasks"] if isinstance(task["model"], str)]
    return [_hash_of(Path(name)) for name in names if name.endswith(".json") and Path(name).is_file()]


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def fingerprint(directory: Path | None) -> str:
    """Hash of every row of the catalogue and of the user's own."""
    import trainplan_models.catalog

    total = hashlib.sha256()
    own = Path(trainplan_models.catalog.__file__).parent
    for folder in [own] if directory is None else [own, directory]:
        for path in sorted(folder.glob("*.csv")):
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


# Workers


@dataclass(slots=True)
class _Kept:
    """What a worker process keeps between points."""

    session: Session | None = None
    cache: CandidateCache = field(default_factory=CandidateCache)
    catalogs: dict[Path | None, Catalog] = field(default_factory=dict)


_KEPT = _Kept()
_ONE_AT_A_TIME = threading.Lock()
"""Pyomo's compiler is not made for threads, which a Dask worker may have."""


def solve_point(job: Job) -> Row:
    """Plans one point in this process; whatever goes wrong becomes its row."""
    with _ONE_AT_A_TIME:
        try:
            return _row(job, _planned(job))
        except InfeasibleError as error:
            return _failed(job, "infeasible", str(error))
        except InputError as error:
            return _failed(job, "bad-input", str(error))
        except NoAnswerError as error:
            return _failed(job, "no-answer", str(error))
        except Exception as error:  # a failed point is a row, not a lost sweep
            _close_session()
            return _failed(job, "error", f"{type(error).__name__}: {error}")


def _planned(job: Job) -> Plan:
    if _KEPT.session is None:
        _KEPT.session = Session()
    directory = job.catalog_directory
    if directory not in _KEPT.catalogs:
        _KEPT.catalogs[directory] = builtin() if directory is None else load_catalog(directory)
    return plan(
        Case.from_canonical(job.case),
        _KEPT.catalogs[directory],
        time_limit_s=job.time_limit_s,
        compare=False,
        explain=False,
        promise=job.promise,
        session=_KEPT.session,
        cache=_KEPT.cache,
    )


def _close_session() -> None:
    if _KEPT.session is not None:
        _KEPT.session.close()
        _KEPT.session = None


def _failed(job: Job, status: Status, reason: str) -> Row:
    return Row(
        key=job.key, name=job.point.name, changes=dict(job.point.changes), status=status, reason=reason
    )


def _row(job: Job, found: Plan) -> Row:
    categories: dict[str, float] = {}
    for line in found.cost_lines:
        categories[line.category] = round(categories.get(line.category, 0.0) + line.usd, 2)
    runs = [f"{s.task}: {s.nodes + s.spare_nodes} x {s.pool} {s.mode}" for s in found.segments]
    bought = [f"buy {p.count} x {p.nodes} {p.pool} {p.mode}" for p in found.purchases]
    return Row(
        key=job.key,
        name=job.point.name,
        changes=dict(job.point.changes),
        status="ok" if found.status == "optimal" else "unproven",
        total_usd=found.total_usd,
        expected_usd=found.expected_usd,
        finish_s=found.finish_s,
        tokens=found.tokens,
        gap_frac=found.solver.gap_frac,
        chance_frac=None if found.risk is None else found.risk.chance_frac,
        decision=tuple(dict.fromkeys(runs + bought)),
        by_category_usd=categories,
    )


def _finished(jobs: Sequence[Job], how: How) -> Iterator[Row]:
    """Rows as they are finished; what is lost with a worker is handed out again."""
    workers = how.workers or os.cpu_count() or 1
    if not jobs:
        return
    if not how.scheduler and min(workers, len(jobs)) == 1:
        try:
            yield from map(solve_point, jobs)
        finally:
            _close_session()
        return
    left = {job.key: job for job in jobs}
    for restarts in range(MOST_RESTARTS + 1):
        try:
            for row in _in_parallel(list(left.values()), workers, how.scheduler):
                left.pop(row.key, None)
                yield row
        except Exception as error:  # the pool ended with a worker: joblib and Dask have errors of their own
            if isinstance(error, InputError):
                raise
            if restarts == MOST_RESTARTS:
                for job in left.values():
                    yield _failed(job, "error", f"the workers ended unexpectedly: {error}")
                return
        if not left:
            return


def _in_parallel(jobs: list[Job], workers: int, scheduler: str) -> Iterator[Row]:
    """The one way to many processes: joblib, with its own workers or those of a Dask cluster."""
    from joblib import Parallel, delayed, parallel_config

    calls = [delayed(solve_point)(job) for job in jobs]
    if not scheduler:
        with parallel_config(backend="loky", n_jobs=min(workers, len(jobs))):
            yield from Parallel(return_as="generator_unordered", batch_size="auto")(calls)
        return
    with _dask_client(scheduler) as client, parallel_config(backend="dask", client=client, pure=False):
        yield from Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1)(calls)


def _dask_client(address: str) -> Any:
    from trainplan_models.base import Problem

    try:
        from distributed import Client
    except ImportError:
        fix = "Install it with: pip install 'trainplan[dask]'"
        raise InputError(Problem("a Dask cluster needs distributed", key="--scheduler", fix=fix)) from None
    try:
        return Client(address, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            Problem(f"no Dask scheduler answers at {address}: {error}", key="--scheduler")
        ) from None
