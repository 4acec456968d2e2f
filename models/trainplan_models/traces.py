"""Recorded spot capacity: how many nodes of a pool could be had at each moment.

Two kinds of file are read, and one trap is guarded against:

- CSV with ``timestamp_s`` and ``available`` or ``capacity`` (nodes from that moment on, at even steps or at
  change points), and ``spot_price`` (USD per node and hour) where it was recorded;
- JSON with ``metadata.gap_seconds`` and ``data`` (nodes per step), and ``prices`` where recorded;
- recordings that store the inverse, 1 while spot is *lost*. A CSV names that column ``preempted``; a JSON file
  does not say, so whoever reads it must (``preempted=True``).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models.base import InputError, Problem

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

TIME, PRICE, LOST = "timestamp_s", "spot_price", "preempted"
COUNTS = ("available", "capacity", LOST)
CHANGE_TICK_S = 60.0
"""Step at which recordings of change points are replayed."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes that could be had in one pool, by step of ``tick_s``."""

    name: str
    tick_s: float
    nodes: NDArray[np.int64]
    """Nodes per step."""
    usd_per_node_h: FloatArray | None = None
    """Recorded spot price per step."""

    @property
    def length_s(self) -> float:
        """Length of the recording."""
        return self.nodes.size * self.tick_s

    @property
    def most_nodes(self) -> int:
        """Most nodes that were ever there."""
        return int(self.nodes.max())

    def up(self, gang: int) -> BoolArray:
        """Steps in which a gang of that many nodes could run."""
        return np.asarray(self.nodes >= gang)

    def hit(self, gang: int) -> BoolArray:
        """Steps at whose start a running gang loses a node.

        Which nodes leave is not recorded, so every drop is taken to hit a node of the gang.
        """
        drop = np.zeros(self.nodes.size, bool)
        drop[1:] = np.diff(self.nodes) < 0
        return np.asarray(drop | ~self.up(gang))

    def starts(self, length_s: float, count: int) -> NDArray[np.int64]:
        """Up to ``count`` steps, evenly spaced, from which ``length_s`` of recording is left."""
        last = self.nodes.size - int(np.ceil(length_s / self.tick_s - 1e-9))
        if last < 0:
            return np.zeros(0, np.int64)
        return np.unique(np.linspace(0, last, count).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of recordings replayed side by side: arrays (steps, zones, runs)."""

    tick_s: float
    up: BoolArray
    hit: BoolArray
    usd_per_node_h: FloatArray | None = None
    """Recorded price, by zone, of spot; None where none was recorded."""

    @property
    def runs(self) -> int:
        """Number of stretches."""
        return int(self.up.shape[2])


def windows(zones: Sequence[Trace], gang: int, length_s: float, count: int) -> Windows:
    """Evenly spaced stretches of recordings of zones that were taken at the same time.

    Args:
        zones: one trace, or several zones the job may move between.
        gang: nodes the job needs at once.
        length_s: length of a stretch.
        count: stretches wanted.

    Raises:
        InputError: zones have different steps, or the recording is shorter than a stretch.
    """
    tick_s = zones[0].tick_s
    if any(zone.tick_s != tick_s for zone in zones):
        names = ", ".join(f"{zone.name}: {zone.tick_s:g} s" for zone in zones)
        raise InputError(Problem(f"zones are recorded at different steps ({names})"))
    shortest = min(zones, key=lambda zone: zone.nodes.size)
    starts = shortest.starts(length_s, count)
    if starts.size == 0:
        have, want = shortest.length_s / 3600, length_s / 3600
        message = f"{shortest.name} is {have:.3g} h long and the replay needs {want:.3g} h"
        raise InputError(Problem(message, fix="Give a longer trace or a shorter job"))
    steps = int(np.ceil(length_s / tick_s - 1e-9))
    index = starts[None, :] + np.arange(steps)[:, None]
    prices = [zone.usd_per_node_h for zone in zones]
    known = [price for price in prices if price is not None]
    return Windows(
        tick_s,
        np.stack([zone.up(gang)[index] for zone in zones], axis=1),
        np.stack([zone.hit(gang)[index] for zone in zones], axis=1),
        np.stack([price[index] for price in known], axis=1) if len(known) == len(zones) else None,
    )


def side_by_side(parts: Sequence[Windows], usd_per_node_h: float) -> Windows:
    """The runs of several sets of windows of equal steps as one; ``usd_per_node_h`` where none was recorded."""
    priced = any(part.usd_per_node_h is not None for part in parts)
    prices = [
        np.full(part.up.shape, usd_per_node_h) if part.usd_per_node_h is None else part.usd_per_node_h
        for part in parts
    ]
    return Windows(
        parts[0].tick_s,
        np.concatenate([part.up for part in parts], axis=2),
        np.concatenate([part.hit for part in parts], axis=2),
        np.concatenate(prices, axis=2) if priced else None,
    )


def load_trace(path: str | Path, preempted: bool = False) -> Trace:
    """Read one recording.

    Args:
        path: a ``.csv`` or ``.json`` file.
        preempted: the numbers are 1 while spot is lost, not while it is available.

    Raises:
        InputError: not a recording, with file and line.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(file))) from error
    read = _from_json if file.suffix == ".json" else _from_csv
    return read(text, file, preempted)


def load_folder(directory: str | Path, preempted: bool = False) -> tuple[Trace, ...]:
    """Every recording of a folder by name; files without a ``timestamp_s`` column are passed over.

    Raises:
        InputError: no such folder, no recording in it, or a broken one.
    """
    folder = Path(directory)
    files = sorted((*folder.glob("*.csv"), *folder.glob("*.json"))) if folder.is_dir() else []
    found = tuple(load_trace(file, preempted) for file in files if _is_recording(file))
    if not found:
        raise InputError(Problem("no recordings here", file=str(folder), fix=f"Columns: {TIME}, available"))
    return found


def _is_recording(file: Path) -> bool:
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        head = lines.read(4096)
    if file.suffix == ".json":
        return "gap_seconds" in head
    return TIME in head.partition("\n")[0].split(",")


def _from_json(text: str, file: Path, preempted: bool) -> Trace:
    try:
        content: dict[str, Any] = json.loads(text)
        tick_s = float(content["metadata"]["gap_seconds"])
        nodes = np.asarray(content["data"], dtype=float)
        prices = content.get("prices")
        usd = None if prices is None else np.asarray(prices, dtype=float)
    except (ValueError, KeyError, TypeError) as error:
        problem = Problem(f"not a recording: {error}", file=str(file), fix="metadata.gap_seconds and data")
        raise InputError(problem) from error
    return _made(file, tick_s, nodes, usd, preempted)


def _from_csv(text: str, file: Path, preempted: bool) -> Trace:
    rows = csv.reader(text.splitlines())
    header = [column.strip() for column in next(rows, [])]
    count = next((column for column in COUNTS if column in header), "")
    if TIME not in header or not count:
        fix = f"Columns: {TIME} and one of {', '.join(COUNTS)}; {PRICE} if known"
        raise InputError(Problem(f"not a recording: columns {header}", file=str(file), line=1, fix=fix))
    wanted = [TIME, count, *([PRICE] if PRICE in header else [])]
    table = np.asarray(list(_numbers(rows, [header.index(name) for name in wanted], file)))
    if len(table) < 2:
        raise InputError(Problem("a recording needs two rows or more", file=str(file)))
    times, steps = table[:, 0], np.diff(table[:, 0])
    if np.any(steps <= 0):
        line = int(np.argmax(steps <= 0)) + 3
        raise InputError(Problem("timestamps must grow", key=TIME, file=str(file), line=line))
    even = np.allclose(steps, steps[0])
    tick_s = float(steps[0]) if even else CHANGE_TICK_S
    grid = np.arange(times[0], times[-1] + (0.5 * tick_s if even else 0.0), tick_s)
    at = np.searchsorted(times, grid + 1e-6 * tick_s, side="right") - 1
    usd = table[at, 2] if len(wanted) == 3 else None
    return _made(file, tick_s, table[at, 1], usd, preempted or count == LOST)


def _numbers(rows: Iterator[list[str]], columns: list[int], file: Path) -> Iterator[list[float]]:
    for line, row in enumerate(rows, start=2):
        if row:
            try:
                yield [float(row[column]) for column in columns]
            except (ValueError, IndexError) as error:
                raise InputError(Problem(f"not numbers: {row}", file=str(file), line=line)) from error


def _made(file: Path, tick_s: float, nodes: FloatArray, usd: FloatArray | None, preempted: bool) -> Trace:
    bad = not np.all(np.isfinite(nodes)) or np.any(nodes < 0) or nodes.size == 0 or not tick_s > 0
    if bad or (usd is not None and (usd.shape != nodes.shape or not np.all(np.isfinite(usd)))):
        raise InputError(
            Problem("counts and prices must be finite, not negative, one a step", file=str(file))
        )
    if preempted:
        nodes = np.where(nodes > 0, 0.0, 1.0)
    return Trace(file.stem, tick_s, nodes.astype(np.int64), usd)
