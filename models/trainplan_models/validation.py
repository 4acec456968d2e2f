"""Holds the performance and memory models against measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np

from trainplan_models.efficiency import hardware_rows, software_rows
from trainplan_models.fitting_rows import State
from trainplan_models.measurement_cells import number
from trainplan_models.measurements import Known, Reading, Unread, read
from trainplan_models.prediction import Candidates, Prediction, candidates, predict
from trainplan_models.published_runs import RunResult, judge_runs
from trainplan_models.rl_measurements import predicted_rate, read_rl

GIB = 2.0**30
SWEEP = 4
"""Rows that differ only in their layout make a sweep when there are at least this many."""


@dataclass(frozen=True, slots=True)
class ThroughputResult:
    """One row of a throughput table."""

    row_id: str
    predicted: float | None
    """Tokens per second and accelerator."""
    measured: float | None
    reason: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    sweep: str = ""
    """What rows that differ only in their layout share."""
    assumed: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Predicted over measured."""
        return self.predicted / self.measured if self.predicted and self.measured else None


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """One row of a memory table."""

    row_id: str
    predicted_peak_gib: float | None
    fits: bool | None
    reason: str | None
    measured_peak_gib: float | None = None
    outcome: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Validation:
    """Everything that was judged."""

    rows: tuple[ThroughputResult, ...]
    memory_rows: tuple[MemoryResult, ...]
    run_rows: tuple[RunResult, ...]

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "rows": [
                {"row_id": r.row_id, "predicted": r.predicted, "measured": r.measured, "reason": r.reason}
                for r in self.rows
            ],
            "memory_rows": [
                {
                    "row_id": r.row_id,
                    "predicted_peak_gib": r.predicted_peak_gib,
                    "fits": r.fits,
                    "reason": r.reason,
                }
                for r in self.memory_rows
            ],
            "run_rows": [run.to_json() for run in self.run_rows],
            "summary": summary(self),
        }


def shipped(name: str) -> list[dict[str, str]]:
    """Rows that ship with the project: ``throughput``, ``memory`` or ``runs``."""
    import csv

    text = files("trainplan_models.catalog").joinpath(f"measurements_{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def validate(
    throughput: Iterable[Mapping[str, str]],
    memory: Iterable[Mapping[str, str]],
    runs: Iterable[Mapping[str, str]],
    known: Known,
    state: State | None = None,
) -> Validation:
    """Predict every row from its layout alone and set it beside what was measured.

    ``state`` replaces the parameters of the catalogue. Rows that cannot be judged carry a reason.
    """
    return Validation(
        tuple(judge_throughput(row, known, state) for row in throughput),
        tuple(judge_memory(row, known) for row in memory),
        tuple(judge_runs(runs, known)),
    )


def find(row: Mapping[str, str], known: Known) -> Candidates | Unread:
    """A row as the layouts it may stand for, or the reason why there are none."""
    reading = read(row, known)
    if isinstance(reading, Unread):
        return reading
    found = candidates(reading)
    if found is None:
        return Unread(reading.row_id, "no legal layout agrees with the row", reading.measured, reading.labels)
    return found


def predict_with(found: Candidates, state: State | None) -> Prediction:
    """Predict with the parameters of ``state``, or those of the catalogue."""
    labels = found.reading.labels
    hardware = hardware_rows() if state is None else state.hardware
    software = software_rows() if state is None else state.software
    return predict(found, hardware=hardware[labels["generation"]], software=software[labels["software"]])


def judge_throughput(row: Mapping[str, str], known: Known, state: State | None = None) -> ThroughputResult:
    """Predict the throughput of one row."""
    if row.get("task", "").startswith("rl"):
        return _judge_rl(row, known, state)
    found = find(row, known)
    if isinstance(found, Unread):
        return ThroughputResult(found.row_id, None, found.measured, found.reason, found.labels)
    reading = found.reading
    guess = predict_with(found, state)
    return ThroughputResult(
        reading.row_id,
        guess.tokens_per_s_per_accelerator,
        reading.measured,
        None,
        reading.labels,
        sweep_of(reading, row),
        reading.assumed,
    )


def _judge_rl(row: Mapping[str, str], known: Known, state: State | None) -> ThroughputResult:
    """Predict the tokens per second of one row over whole reinforcement learning steps."""
    found = read_rl(row, known)
    if isinstance(found, Unread):
        return ThroughputResult(found.row_id, None, found.measured, found.reason, found.labels)
    rate = predicted_rate(found, state)
    reason = None if rate else "the printed replica does not hold the weights"
    return ThroughputResult(found.row_id, rate or None, found.measured, reason, found.labels)


def sweep_of(reading: Reading, row: Mapping[str, str]) -> str:
    """What a layout sweep holds fixed."""
    setup, note = reading.setup, row.get("status_note", "").split(";")[0]
    kernel = note if note.startswith("kernel") else ""
    parts = (
        reading.labels["source"], setup.shape.layers, setup.shape.hidden, setup.shape.heads, setup.sequence_length,
        setup.global_batch_sequences, reading.nodes * reading.node.accelerators, setup.precision, setup.software,
        reading.labels["task"], reading.labels["framework"], reading.accelerator.name, kernel,
    )  # fmt: skip
    return "|".join(str(part) for part in parts)


def judge_memory(row: Mapping[str, str], known: Known) -> MemoryResult:
    """Predict the peak memory of one row and whether it fits."""
    outcome, measured = row.get("outcome", ""), number(row, "peak_gib")
    found = find(row, known)
    if isinstance(found, Unread):
        return MemoryResult(found.row_id, None, None, found.reason, None, outcome, found.labels)
    guess = predict_with(found, None)
    counter = row.get("mem_kind", "").lower()
    allocated = "alloc" in counter or "analytical" in counter
    peak = guess.allocated_bytes if allocated else guess.peak_bytes
    return MemoryResult(
        found.reading.row_id,
        peak / GIB,
        guess.fits,
        None,
        measured,
        outcome,
        found.reading.labels,
    )


def errors(ratios: Sequence[float]) -> dict[str, float]:
    """Count, median and 90th percentile of the relative error, and bias (median ratio less one)."""
    values = np.asarray(ratios)
    error = np.abs(values - 1.0)
    return {
        "count": len(values),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
        "bias": float(np.median(values) - 1.0),
    }


def by_class(rows: Sequence[ThroughputResult], keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """Errors of every class along ``keys``."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.ratio is not None:
            groups.setdefault(" ".join(row.labels[key] for key in keys), []).append(row.ratio)
    return {name: errors(ratios) for name, ratios in sorted(groups.items())}


def ranking(rows: Sequence[ThroughputResult]) -> dict[str, dict[str, float]]:
    """Rank correlation and regret of every sweep.

    Regret is what the layout predicted to be best loses against the one measured to be best.
    """
    from scipy.stats import spearmanr

    groups: dict[str, list[ThroughputResult]] = {}
    for row in rows:
        if row.ratio is not None and row.sweep:
            groups.setdefault(row.sweep, []).append(row)
    found: dict[str, dict[str, float]] = {}
    for name, members in groups.items():
        predicted = np.array([row.predicted for row in members], dtype=float)
        measured = np.array([row.measured for row in members], dtype=float)
        if len(members) < SWEEP or len(np.unique(predicted)) < SWEEP or len(np.unique(measured)) < SWEEP:
            continue
        correlation = float(spearmanr(predicted, measured).statistic)
        regret = float(1.0 - measured[int(np.argmax(predicted))] / measured.max())
        found[name] = {"count": len(members), "rank_correlation": correlation, "regret": regret}
    return found


def confusion(rows: Sequence[MemoryResult]) -> dict[str, int]:
    """How often a layout that fits or not was said to fit or not."""
    table = {"fit_said_fit": 0, "fit_said_oom": 0, "oom_said_fit": 0, "oom_said_oom": 0}
    for row in rows:
        if row.fits is not None and row.outcome in ("fit", "oom"):
            table[f"{row.outcome}_said_{'fit' if row.fits else 'oom'}"] += 1
    return table


def summary(result: Validation) -> dict[str, Any]:
    """All figures that the bars are about."""
    predicted = [row for row in result.rows if row.ratio is not None]
    judged = [row for row in predicted if row.labels.get("task") != "rl"]
    steps = [row.ratio for row in predicted if row.labels.get("task") == "rl" and row.ratio]
    peaks = [
        row.predicted_peak_gib / row.measured_peak_gib
        for row in result.memory_rows
        if row.predicted_peak_gib and row.measured_peak_gib
    ]
    table = confusion(result.memory_rows)
    total = sum(table.values())
    sweeps = ranking(result.rows)
    runs = [run.predicted / run.measured for run in result.run_rows if run.predicted and run.measured]
    inside = [run.inside for run in result.run_rows if run.inside is not None]
    return {
        "throughput": errors([row.ratio for row in judged if row.ratio]) if judged else None,
        "reinforcement_learning": errors(steps) if steps else None,
        "by_generation": by_class(judged, ("generation", "precision", "model")),
        "by_accelerator": by_class(judged, ("accelerator",)),
        "by_precision": by_class(judged, ("precision",)),
        "by_source": by_class(judged, ("source",)),
        "by_size": by_class(judged, ("size",)),
        "by_software": by_class(judged, ("software",)),
        "by_task": by_class(judged, ("task",)),
        "sweeps": sweeps,
        "median_rank_correlation": _median([s["rank_correlation"] for s in sweeps.values()]),
        "median_regret": _median([s["regret"] for s in sweeps.values()]),
        "fit": {**table, "right": (table["fit_said_fit"] + table["oom_said_oom"]) / total} if total else None,
        "peak_memory": errors(peaks) if peaks else None,
        "runs": errors(runs) if runs else None,
        "runs_inside_band": float(np.mean(inside)) if inside else None,
        "not_judged": _reasons(result),
    }


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _reasons(result: Validation) -> dict[str, int]:
    unmeasured = "nothing measured to compare with"
    reasons = [row.reason or (unmeasured if row.measured is None else None) for row in result.rows]
    reasons += [row.reason for row in result.memory_rows] + [row.reason for row in result.run_rows]
    counts: dict[str, int] = {}
    for reason in reasons:
        if reason:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
