"""The JSON of ``trainplan estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainplan.cli.estimate import Question
    from trainplan_models.calibration import Calibration
    from trainplan_models.estimating import Change, Estimate

GIB = 2.0**30
HOST_COPY_BYTES_PER_S = 10e9
"""Copy of a device's share of the state to host memory, which blocks training even when saves are asynchronous."""


def checkpoint_s(question: Question, found: Estimate) -> float:
    """Seconds per step that blocking copies of checkpoints take, at the case's interval."""
    devices = found.layout.accelerators
    blocking = question.work.checkpoint_bytes / devices / HOST_COPY_BYTES_PER_S
    return found.step_s * blocking / question.interval_s


def as_record(question: Question, found: Estimate) -> dict[str, Any]:
    """One estimate as JSON."""
    tokens, site = question.work.tokens, question.site
    saved = checkpoint_s(question, found)
    slowed = 1.0 + saved / found.step_s
    price = min(site.usd_per_node_h.values(), default=None)

    def days(rate: float) -> float | None:
        return tokens / rate * slowed / 86400.0 if tokens else None

    middle = days(found.tokens_per_s)
    return {
        "layout": found.layout.model_dump(),
        "nodes": found.nodes,
        "fits": found.fits,
        "tokens_per_s": {
            "p10": found.tokens_per_s_p10,
            "p50": found.tokens_per_s,
            "p90": found.tokens_per_s_p90,
        },
        "days": {"p10": days(found.tokens_per_s_p90), "p50": middle, "p90": days(found.tokens_per_s_p10)},
        "usd": None if price is None or middle is None else middle * 24.0 * found.nodes * price,
        "mfu_frac": found.mfu_frac,
        "step_s": found.step_s + saved,
        "time_s": {**found.time_s, "checkpoint_s": saved},
        "memory_gib": {
            stage: {name.removesuffix("_bytes"): value / GIB for name, value in parts.items()}
            for stage, parts in found.memory_bytes.items()
        },
        "peak_gib": found.peak_bytes / GIB,
        "usable_gib": found.usable_bytes / GIB,
        "over_gib": max(found.peak_bytes - found.usable_bytes, 0.0) / GIB,
        "host_gib_per_device": found.host_bytes / GIB,
        "error_class": found.error_class,
        "error_measured": found.error_measured,
    }


def change_record(change: Change) -> dict[str, Any]:
    return {
        "layout": change.layout.model_dump(),
        "nodes": change.nodes,
        "changed": list(change.changed),
        "tokens_per_s": change.tokens_per_s,
        "peak_gib": change.peak_bytes / GIB,
    }


def calibration_record(learnt: Calibration | None) -> dict[str, Any] | None:
    if learnt is None:
        return None
    return {
        "factors": {
            name: {
                "factor": item.factor,
                "rows": item.rows,
                "median_error_before": item.median_error_before,
                "median_error_after": item.median_error_after,
            }
            for name, item in learnt.factors.items()
        },
        "unused": [{"row_id": row, "reason": reason} for row, reason in learnt.unused],
    }
