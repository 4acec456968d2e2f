"""Which batches a segment goes through where the batch of its task grows, and how fast each of them is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from trainplan.options import Detail
from trainplan.screening import setup_on
from trainplan_models.layout import grid_of
from trainplan_models.plan import BatchPhase, Segment
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup

LEAST_FRAC = 1e-9


def with_batches(segments: Sequence[tuple[Segment, Detail]], throughput_factor: float) -> tuple[Segment, ...]:
    """The segments of a plan in order of time, those of ramped tasks with their batches.

    Args:
        segments: with what each stands for.
        throughput_factor: the case's, on every throughput.
    """
    done_frac: dict[str, float] = defaultdict(float)
    whole_frac: dict[str, float] = defaultdict(float)
    for segment, _ in segments:
        whole_frac[segment.task] += segment.work_frac
    found = []
    for segment, detail in segments:
        setup = setup_on(detail.work, detail.site.accelerator)
        if setup is not None and setup.ramp and segment.tokens > 0.0:
            # Where more or fewer tokens are trained on than the case says, the ramp is stretched with them.
            start = done_frac[segment.task] / whole_frac[segment.task]
            share = segment.work_frac / whole_frac[segment.task]
            phases = _phases(setup, segment, detail, throughput_factor, start, share)
            segment = segment.model_copy(update={"batches": phases})
        done_frac[segment.task] += segment.work_frac
        found.append(segment)
    return tuple(found)


def _phases(
    setup: TrainSetup, segment: Segment, detail: Detail, factor: float, start_frac: float, share_frac: float
) -> tuple[BatchPhase, ...]:
    grid = grid_of([segment.layout], segment.accelerators_per_node)
    found, at = [], 0.0
    for share, one in setup.phases:
        inside = min(at + share, start_frac + share_frac) - max(at, start_frac)
        at += share
        if inside > LEAST_FRAC:
            time = step_time(one, detail.site.accelerator, detail.site.node, grid)
            found.append(
                BatchPhase(
                    tokens=segment.tokens * inside / share_frac,
                    global_batch_tokens=one.tokens_per_step,
                    tokens_per_s=float(time.tokens_per_s[0]) * factor,
                )
            )
    return tuple(found)
