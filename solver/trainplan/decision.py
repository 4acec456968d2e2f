"""What a solve gives back: why it stopped, what it decided, how good that provably is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["optimal", "feasible", "infeasible", "no-answer"]


@dataclass(frozen=True, slots=True)
class Use:
    """An option at work in a window."""

    option: int
    window: int
    share_frac: float
    """Share of the task at scale 1."""
    begins: bool
    """Whether it is set up here."""
    start_days: float
    end_days: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, in days and USD."""

    uses: tuple[Use, ...]
    bought: dict[int, int]
    """Product -> nodes."""
    bought_from_days: dict[int, float]
    """Product -> day on which its purchase begins."""
    tiers: dict[tuple[int, int], str]
    """(task, region) -> tier of its dataset."""
    scale_frac: float
    """Stretch of the scalable tasks."""
    finish_days: float
    usd: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """``state``: why the solver stopped, proven or not; ``decision``: what it has."""

    state: State
    decision: Decision | None
    bound: float
    """Proven bound on the first goal: USD, days or stretch."""
    gap_frac: float
    columns: int
    rows: int
    nodes: int
    seconds: float
    version: str
    scope: str = ""
    """What the bound is a bound over, where not simply over all options."""
