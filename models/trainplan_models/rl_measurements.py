"""Published step times of reinforcement learning, predicted from their layouts alone.

The tables say how long the answers were, how many were made in a step, on how many devices one replica of the
engine lay and how far generation ran ahead of training. They do not say how the devices were split where the two
run side by side; the fastest split is taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan_models.efficiency import hardware_rows, software_rows
from trainplan_models.fitting_rows import State
from trainplan_models.generation_engine import Engine
from trainplan_models.measurement_cells import Known, NotJudged, Row, count, first_match, number
from trainplan_models.measurements import Reading, Unread, read
from trainplan_models.prediction import Candidates, candidates, predict
from trainplan_models.rollout import (
    COLOCATED_FRAC,
    SCORING_PASSES,
    SERVING_FRAC,
    RolloutStep,
    Samples,
    Serving,
    apart_step,
    rollout_step,
)

PROMPT_TOKENS = 110.0
"""Mean prompt of the mathematical problem sets of the public tables: what their rates count beside the answers."""
SPLITS = 8
"""Parts in which devices are dealt out between training and generation where a table does not say how."""


@dataclass(frozen=True, slots=True)
class Training:
    """One way to place the update: its layouts, and the nodes left to generation (0: generation shares them)."""

    found: Candidates
    generating: int


@dataclass(frozen=True, slots=True)
class RlReading:
    """One row, understood."""

    row_id: str
    samples: Samples
    lag: int
    """Steps by which generation may run ahead; 0: on policy, on the same devices."""
    tensor: int
    passes_count: float
    slowdown: float
    """Step time of the row's software release over that of the release the parameters stand for."""
    release: str
    places: tuple[Training, ...]
    measured: float | None
    """Tokens per second and accelerator over the whole step."""

    @property
    def reading(self) -> Reading:
        """The update as a training run, for what all placements share."""
        return self.places[0].found.reading

    @property
    def labels(self) -> dict[str, str]:
        """What errors are grouped by."""
        return {**self.reading.labels, "task": "rl", "software": self.release}


def read_rl(row: Row, known: Known) -> RlReading | Unread:
    """A row of a reinforcement-learning table, or the reason why it cannot be judged."""
    try:
        return _read(row, known)
    except NotJudged as reason:
        measured = number(row, "tokens_per_s_per_accel")
        return Unread(row.get("row_id", ""), str(reason), measured, {"source": row.get("source_group", "")})


def _noted(pattern: str, note: str) -> float | None:
    match = re.search(pattern, note)
    return float(match.group(1).replace(",", "")) if match else None


def _read(row: Row, known: Known) -> RlReading:
    note, devices = row.get("status_note", ""), count(row, "num_accelerators")
    response, made = _noted(r"avg seq ([\d,.]+)", note), _noted(r"G-GBS ([\d,]+)", note)
    tensor, lag = _noted(r"generation \[TP,PP\] \[(\d+)", note), _noted(r"(\d+)-step Off", note)
    updated = count(row, "global_batch_seqs")
    release = first_match("rollout_releases.csv", row.get("framework", ""))
    if devices is None or release is None or updated is None or not (response and made and tensor):
        raise NotJudged("reinforcement learning: rollout and update placement not given")
    samples = Samples(int(made), 1, PROMPT_TOKENS, response)
    step_s = number(row, "step_time_s")
    tokens = made * (PROMPT_TOKENS + response)
    # One update for each rollout needs no log-probabilities of an older policy from the release on that says so.
    spared = updated == made and float(release["slowdown"]) == 1.0
    return RlReading(
        row_id=row.get("row_id", ""),
        samples=samples,
        lag=int(lag or 0),
        tensor=int(tensor),
        passes_count=SCORING_PASSES - spared,
        slowdown=float(release["slowdown"]),
        release=release["release"],
        places=_places(row, known, samples, devices, bool(lag)),
        measured=tokens / step_s / devices if step_s else number(row, "tokens_per_s_per_accel"),
    )


def _places(row: Row, known: Known, samples: Samples, devices: int, apart: bool) -> tuple[Training, ...]:
    each = count(row, "accelerators_per_node") or 8
    nodes = max(devices // each, 1)
    shares = {round(nodes * part / SPLITS) for part in range(1, SPLITS)} if apart else {nodes}
    found, reason = [], "no share of the nodes suits the printed degrees"
    for share in sorted(shares - {0}):
        update = _update(row, known, samples, share * each)
        if isinstance(update, Candidates):
            found.append(Training(update, nodes - share))
        elif isinstance(update, str):
            reason = update
    if not found:
        raise NotJudged(reason)
    return tuple(found)


def _update(row: Row, known: Known, samples: Samples, devices: int) -> Candidates | str | None:
    """The update on ``devices`` devices: samples packed into sequences of full length, as many as the degrees need."""
    length, updated = count(row, "seq_len"), count(row, "global_batch_seqs") or 1
    degrees = {key: count(row, key) or 1 for key in ("tp", "pp", "cp", "ep")}
    model = degrees["tp"] * degrees["pp"] * degrees["cp"]
    if length is None:
        return "sequence length not given"
    if devices % model:
        return None
    replicas = devices // model
    mean = PROMPT_TOKENS + samples.response_tokens
    packed = math.ceil(updated * mean / length / replicas) * replicas
    experts = math.gcd(degrees["ep"], devices // degrees["pp"])
    cells = {
        "task": "pretrain",
        "num_accelerators": str(devices),
        "global_batch_seqs": str(packed),
        "ep": str(experts),
    }
    reading = read({**row, **cells, "micro_batch": "1"}, known)
    if isinstance(reading, Unread):
        return reading.reason
    setup = replace(reading.setup, kind="rl", document_tokens=int(min(mean, length)))
    return candidates(replace(reading, setup=setup))


def update_rates(reading: RlReading, state: State | None = None) -> list[float]:
    """Tokens per second of the update in every placement a row may have had, before what learning costs it."""
    rates = []
    for place in reading.places:
        item = place.found.reading
        hardware = (hardware_rows() if state is None else state.hardware)[item.labels["generation"]]
        software = (software_rows() if state is None else state.software)[item.labels["software"]]
        guess = predict(place.found, hardware=hardware, software=software)
        rates.append(guess.tokens_per_s_per_accelerator * item.nodes * item.node.accelerators)
    return rates


def step_of(reading: RlReading, rates: Sequence[float], achieved: Engine | None = None) -> RolloutStep:
    """The step of a row in its fastest placement, at the speed of the current release."""
    serving = Serving(
        SERVING_FRAC if reading.lag else COLOCATED_FRAC,
        1.0 if reading.reading.setup.precision == "fp8" else 2.0,
        reading.tensor,
        reading.reading.setup.sequence_length,
        achieved,
    )
    found = []
    for place, rate in zip(reading.places, rates, strict=True):
        item = place.found.reading
        where = (item.setup, reading.samples, item.accelerator, item.node)
        if reading.lag:
            nodes = np.array([place.generating])
            step = apart_step(*where, nodes, np.array([rate]), serving, reading.passes_count, reading.lag)
        else:
            step = rollout_step(
                *where, np.array([item.nodes]), np.array([rate]), serving, reading.passes_count
            )
        found.append(step)
    return min(found, key=lambda step: float(step.step_s[0]))


def predicted_rate(reading: RlReading, state: State | None = None) -> float:
    """Tokens per second and accelerator of a row over the whole step; 0 where the printed replica does not fit."""
    item, place = reading.reading, reading.places[0]
    devices = (item.nodes + place.generating) * item.node.accelerators
    tokens = reading.samples.prompts * (reading.samples.prompt_tokens + reading.samples.response_tokens)
    step_s = float(step_of(reading, update_rates(reading, state)).step_s[0])
    return tokens / (reading.slowdown * step_s * devices)
