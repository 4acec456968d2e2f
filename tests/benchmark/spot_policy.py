"""The fallback rule of plans against the greedy and Uniform Progress policies, on a folder of recordings.

    python tests/benchmark/spot_policy.py DIR [--json] [--starts 100] [--others] [--preempted]

Every recording of the folder that is long enough is replayed from evenly spaced start times under each
setting: all of them together (``settings``), and by size of the gang (``gangs``). ``--others`` adds deadlines
that the constants of the rule were not chosen on, and recordings that are too short, with the job scaled to
half their length. Savings are against on-demand alone. The baseline "uniform progress" is in each setting the
better of two readings of its hysteresis rule. The bound knows the future and restarts for free.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))

from trainplan_models.simulation_replay import Job, offline_bound_usd, on_demand_usd, replay
from trainplan_models.spot_policy import FallbackRule, Greedy, Policy, UniformProgress
from trainplan_models.traces import Trace, load_folder, side_by_side, windows

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Row = dict[str, float | int | str]
HOUR_S = 3600.0
SPOT_USD_PER_H, ON_DEMAND_USD_PER_H = 0.918, 3.06
"""p3.2xlarge, the machine of most recordings (us-east-1, 2023)."""
GANGS = (1, 4, 16)
SHORTEST_S = 10 * HOUR_S
"""Recordings shorter than this say little about a deadline."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One job and deadline."""

    work_h: float
    deadline_h: float
    restart_h: float

    @property
    def name(self) -> str:
        return f"{self.work_h:g} h in {self.deadline_h:g} h, restart {self.restart_h * 60:g} min"

    def job(self, scale: float = 1.0) -> Job:
        return Job(
            work_s=self.work_h * HOUR_S * scale,
            deadline_s=self.deadline_h * HOUR_S * scale,
            restart_s=self.restart_h * HOUR_S,
            spot_usd_per_h=SPOT_USD_PER_H,
            on_demand_usd_per_h=ON_DEMAND_USD_PER_H,
        )


SETTINGS = (Setting(48, 52, 0.2), Setting(48, 70, 0.2), Setting(48, 70, 0.05), Setting(48, 96, 0.2))
OTHERS = (Setting(24, 26, 0.1), Setting(24, 30, 0.3), Setting(96, 140, 0.25), Setting(60, 75, 0.5))
"""Deadlines that the constants of the rule were not chosen on."""

POLICIES: dict[str, Callable[[Job], Policy]] = {
    "rule": lambda job: FallbackRule.standard(job.restart_s, job.spot_usd_per_h, job.on_demand_usd_per_h),
    "greedy": lambda job: Greedy(job.restart_s),
    "uniform_progress": lambda job: UniformProgress(job.restart_s),
    "uniform_progress_catch_up": lambda job: UniformProgress(job.restart_s, catch_up_first=True),
}


@dataclass(frozen=True, slots=True)
class Runs:
    """Cost by policy of every run under one setting, and what the run was; arrays over runs."""

    gang: IntArray
    base_usd: FloatArray
    usd: dict[str, FloatArray]
    missed: dict[str, BoolArray]


def gangs_of(trace: Trace) -> list[int]:
    """Gangs replayed on a recording: all its nodes where they were asked for as one, else 4 and 16."""
    most = trace.most_nodes
    return [most] if most in GANGS else [gang for gang in GANGS[1:] if gang <= most]


def run(parts: Sequence[tuple[Trace, int]], job: Job, starts: int) -> list[Runs]:
    """Replay one job on recordings with their gangs, those of equal steps side by side. Prices are per node."""
    found = []
    for tick_s in sorted({trace.tick_s for trace, _ in parts}):
        group = [(trace, gang) for trace, gang in parts if trace.tick_s == tick_s]
        each = [windows([trace], gang, job.deadline_s, starts) for trace, gang in group]
        stretch = side_by_side(each, SPOT_USD_PER_H)
        results = {key: replay(make(job), job, stretch) for key, make in POLICIES.items()}
        usd = {key: result.usd for key, result in results.items()}
        gangs = [np.full(part.runs, gang) for part, (_, gang) in zip(each, group, strict=True)]
        found.append(
            Runs(
                np.concatenate(gangs),
                np.full(stretch.runs, on_demand_usd(job)),
                usd | {"bound": offline_bound_usd(job, stretch)},
                {key: result.missed for key, result in results.items()},
            )
        )
    return found


def measure(name: str, parts: Sequence[Runs], gang: int | None = None) -> Row:
    """Savings of every policy over all runs, those of one gang only where given."""
    pick = [np.ones(part.gang.size, bool) if gang is None else part.gang == gang for part in parts]
    base_usd = sum(float(part.base_usd[which].sum()) for part, which in zip(parts, pick, strict=True))
    saving = {
        key: round(
            1 - sum(float(p.usd[key][w].sum()) for p, w in zip(parts, pick, strict=True)) / base_usd, 4
        )
        for key in (*POLICIES, "bound")
    }
    missed = {
        key: sum(int(p.missed[key][w].sum()) for p, w in zip(parts, pick, strict=True)) for key in POLICIES
    }
    return {
        "name": name,
        "runs": sum(int(which.sum()) for which in pick),
        "missed": missed["rule"],
        "missed_baselines": sum(missed.values()) - missed["rule"],
        "saving": saving["rule"],
        "saving_greedy": saving["greedy"],
        "saving_uniform_progress": max(saving["uniform_progress"], saving["uniform_progress_catch_up"]),
        "saving_bound": saving["bound"],
    }


def settings_table(
    traces: Sequence[Trace], starts: int, settings: Sequence[Setting]
) -> tuple[list[Row], list[Row]]:
    """A row a setting over all recordings that are long enough, and the same by size of the gang."""
    whole = {}
    for setting in settings:
        parts = [
            (trace, gang)
            for trace in traces
            if trace.length_s >= setting.deadline_h * HOUR_S
            for gang in gangs_of(trace)
        ]
        whole[setting] = run(parts, setting.job(), starts)
    rows = [measure(setting.name, runs) for setting, runs in whole.items() if runs]
    by_gang = [
        measure(f"{setting.name}, {gang} node{'s' if gang > 1 else ''}", runs, gang)
        for gang in GANGS
        for setting, runs in whole.items()
        if any(np.any(part.gang == gang) for part in runs)
    ]
    return rows, by_gang


def short_table(traces: Sequence[Trace], starts: int, settings: Sequence[Setting]) -> list[Row]:
    """The recordings that are too short, with jobs that end within half their length."""
    rows = []
    for setting in settings:
        length_s, runs = setting.deadline_h * HOUR_S, []
        for trace in traces:
            if SHORTEST_S <= trace.length_s < length_s:
                job = setting.job(trace.length_s / (2 * length_s))
                runs += run([(trace, gang) for gang in gangs_of(trace)], job, starts)
        if runs:
            rows.append(measure(f"{setting.name}, scaled", runs))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--starts", type=int, default=100, help="start times a recording")
    parser.add_argument("--others", action="store_true", help="other deadlines and short recordings too")
    parser.add_argument("--preempted", action="store_true", help="recordings hold 1 where spot is lost")
    arguments = parser.parse_args()
    traces = load_folder(arguments.folder, arguments.preempted)
    tables: dict[str, list[Row]] = dict(
        zip(("settings", "gangs"), settings_table(traces, arguments.starts, SETTINGS), strict=True)
    )
    if arguments.others:
        both = settings_table(traces, arguments.starts, OTHERS)
        tables |= dict(zip(("other_deadlines", "other_deadlines_by_gang"), both, strict=True))
        tables["short_recordings"] = short_table(traces, arguments.starts, SETTINGS)
    if arguments.json:
        print(json.dumps(tables, indent=1))
        return
    print(
        f"{'setting':<44} {'runs':>5} {'missed':>6} {'saving':>7} {'greedy':>7} {'uniform':>7} {'bound':>7}"
    )
    for row in [row for rows in tables.values() for row in rows]:
        savings = [row[key] for key in ("saving", "saving_greedy", "saving_uniform_progress", "saving_bound")]
        figures = " ".join(f"{100 * float(value):6.1f}%" for value in savings)
        print(f"{row['name']:<44} {row['runs']:>5} {row['missed']:>6} {figures}")


if __name__ == "__main__":
    main()
