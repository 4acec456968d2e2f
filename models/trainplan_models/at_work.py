"""Who is at work at a moment."""

from __future__ import annotations

from collections.abc import Iterable

from trainplan_models.plan import Segment

SAME_TIME_S = 1.0
"""Moments this close are the same: what follows something begins where that ends but for rounding."""


def running(segments: Iterable[Segment], at_s: float) -> list[Segment]:
    """Segments at work right after a moment."""
    return [s for s in segments if s.start_s <= at_s < s.end_s - SAME_TIME_S]


def most_nodes_at_once(segments: Iterable[Segment]) -> dict[tuple[str, str], int]:
    """Most nodes at work at a time, spares included, by pool and billing mode."""
    every = list(segments)
    most: dict[tuple[str, str], int] = {}
    for at in every:
        place = at.pool, at.mode
        held = sum(s.nodes + s.spare_nodes for s in running(every, at.start_s) if (s.pool, s.mode) == place)
        most[place] = max(most.get(place, 0), held)
    return most
