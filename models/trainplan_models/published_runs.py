"""Durations of published training runs, predicted from what they trained on what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainplan_models.measurements import Known, Unread, read
from trainplan_models.prediction import candidates, predict

HOURS = ("accelerator-hours", "days")

GOODPUT = {"2020": 0.75, "2021": 0.8, "2022": 0.85, "2023": 0.9}
"""Useful share of the calendar time by year, for runs that do not state it; later years reach 0.92."""
LATER_GOODPUT = 0.92
PRODUCTION_FRAC = 0.82
"""Throughput of production runs against benchmarks of the same year and software: evaluation, data, logging, and
configurations that were fixed before tuning ended. Median of the published runs."""
RUN_BAND = (0.68, 1.45)
"""P10 and P90 of real over predicted duration of published runs."""
DEFAULT_DEVICES = 512
BATCH_TOKENS = ((1e9, 1e6), (1e10, 4e6), (1e11, 8e6), (1e13, 16e6))
"""Tokens in a global batch by parameters, where a run does not state it."""

FRAMEWORKS = {
    "2020": "Megatron-LM",
    "2021": "Megatron-LM",
    "2022": "Megatron-DeepSpeed",
    "2023": "NeMo Megatron 23",
    "2024": "NeMo 24",
    "2025": "NeMo 25.04",
    "2026": "Megatron-Bridge 26.02",
}
"""The software a run of a year is taken to have used."""
DEVELOPERS = {"DeepSeek": "DeepSeek HAI-LLM", "MPT": "llm-foundry"}
"""Software of developers who published theirs."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One published run."""

    run_id: str
    predicted: float | None
    measured: float | None
    unit: str | None
    p10: float | None
    p90: float | None
    reason: str | None

    @property
    def inside(self) -> bool | None:
        """Whether the measured duration lies in the P10..P90 band; None where one of them is missing."""
        if self.measured is None or self.p10 is None or self.p90 is None:
            return None
        return self.p10 <= self.measured <= self.p90

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form."""
        return {
            "run_id": self.run_id,
            "predicted": self.predicted,
            "measured": self.measured,
            "unit": self.unit,
            "p10": self.p10,
            "p90": self.p90,
            "reason": self.reason,
        }


def first_number(text: str) -> float | None:
    """The first number in a cell such as ``~24``, ``1,300,000`` or ``15000+``; None when there is none."""
    match = re.search(r"\d[\d,]*\.?\d*", text)
    return float(match.group(0).replace(",", "")) if match else None


def measured_duration(row: Mapping[str, str]) -> tuple[float | None, str | None]:
    """Accelerator-hours or days a run took, and which of the two."""
    reported = row.get("reported_accel_hours", "")
    if "per T tokens" in reported and (tokens := first_number(row.get("tokens_b", ""))):
        scale = 1000.0 if "K" in reported else 1.0
        return (first_number(reported) or 0.0) * scale * tokens / 1000.0, HOURS[0]
    for cell in ("reported_accel_hours", "derived_accel_hours"):
        text = row.get(cell, "")
        if text and "<" not in text and re.fullmatch(r"[~\d,.\s]+", text):
            return first_number(text), HOURS[0]
    days = row.get("reported_days", "")
    if re.fullmatch(r"[~\d.\s]+", days):
        return first_number(days), HOURS[1]
    return None, None


def judge_runs(rows: Iterable[Mapping[str, str]], known: Known) -> Iterable[RunResult]:
    """Predict the duration of every run."""
    for row in rows:
        yield judge_run(row, known)


def judge_run(row: Mapping[str, str], known: Known) -> RunResult:
    """Predict how long one run took, in the unit it reports (accelerator-hours before days)."""
    run_id, (measured, unit) = row.get("run_id", ""), measured_duration(row)
    unit = unit or HOURS[0]

    def without(reason: str) -> RunResult:
        return RunResult(run_id, None, measured, unit, None, None, reason)

    tokens = first_number(row.get("tokens_b", ""))
    kind = row.get("kind", "")
    if not kind.startswith("pretrain"):
        return without(f"{kind or 'unknown kind'}: not a pretraining run over a known number of tokens")
    if "distilled" in kind:
        return without("distillation: the passes of the teacher are not known")
    if tokens is None:
        return without("number of tokens not given")
    as_row, devices = _as_row(row)
    reading = read(as_row, known)
    if isinstance(reading, Unread):
        return without(reading.reason)
    found = candidates(reading)
    if found is None:
        return without("no legal layout for this model on that many accelerators")
    rate = predict(found).tokens_per_s_per_accelerator
    hours = tokens * 1e9 / rate / 3600.0 / useful_frac(row)
    value = hours if unit == HOURS[0] else hours / devices / 24.0
    low, high = RUN_BAND
    return RunResult(run_id, value, measured, unit, value * low, value * high, None)


def useful_frac(row: Mapping[str, str]) -> float:
    """Share of the reported time that benchmark throughput would have needed."""
    if "logged iteration time" in row.get("goodput_or_notes", ""):
        return 1.0
    return GOODPUT.get(row.get("year", ""), LATER_GOODPUT) * PRODUCTION_FRAC


def _as_row(row: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """A run in the columns of the throughput table, and its number of accelerators."""
    seq = max(int(first_number(row.get("seq_len", "")) or 4096), 1)
    devices = max(int(first_number(row.get("num_accelerators", "")) or DEFAULT_DEVICES), 1)
    devices = max(devices // 8 * 8, 8) if devices > 8 else devices
    params = (first_number(row.get("params_b", "")) or 1.0) * 1e9
    tokens = next((batch for size, batch in BATCH_TOKENS if params <= size), 16e6)
    year = row.get("year", "") or "2024"
    accelerator = row.get("accelerator", "")
    framework = "MaxText" if "TPU" in accelerator else FRAMEWORKS.get(year, "Megatron-Bridge 26.02")
    for start, used in DEVELOPERS.items():
        framework = used if row.get("run_name", "").startswith(start) else framework
    batch = (
        max(round(tokens / seq / devices), 1) * devices if tokens / seq >= devices else _power(tokens / seq)
    )
    values = {
        "row_id": row.get("run_id", ""),
        "model_name": row.get("run_name", ""),
        "params_b": row.get("params_b", ""),
        "seq_len": str(seq),
        "accelerator": accelerator,
        "num_accelerators": str(devices),
        "global_batch_seqs": str(batch),
        "framework": framework,
        "year": year,
        "source_group": "published-run",
        "precision": "fp8" if "FP8" in row.get("parallelism", "") else "bf16",
    }
    for name, cell in (("tp", "TP"), ("pp", "PP"), ("ep", "EP")):
        if match := re.search(rf"\b{cell}(\d+)", row.get("parallelism", "")):
            values[name] = match.group(1)
    return values, devices


def _power(value: float) -> int:
    """The nearest power of two."""
    return int(2 ** round(float(np.log2(max(value, 1.0)))))
