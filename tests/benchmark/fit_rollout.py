"""Fits what generation engines achieve to published step times of reinforcement learning.

    python tests/benchmark/fit_rollout.py            # fit, errors with each model and each release left out
    python tests/benchmark/fit_rollout.py --write    # the same, and write the parameters

The estimate is the maximum of a posterior: normal priors on the logistic scale between the bounds of
``catalog/rollout.csv``, a loss that forgives outliers. The update's speed comes from the efficiency tables.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models")]

from trainplan_models import catalog, step_time  # noqa: E402
from trainplan_models.generation_engine import Engine, engine_rows  # noqa: E402
from trainplan_models.measurements import Unread  # noqa: E402
from trainplan_models.rl_measurements import RlReading, read_rl, step_of, update_rates  # noqa: E402
from trainplan_models.validation import shipped  # noqa: E402

CATALOG = ROOT / "models" / "trainplan_models" / "catalog"
ERROR_SCALE = 0.1
PRIOR_SCALE = 1.0
"""Standard deviation of the priors on the logistic scale."""
OLDER = (0.7, 2.0)
"""Bounds of the slowdown of older releases."""
Floats = NDArray[np.float64]


def found() -> list[RlReading]:
    """All rows of reinforcement learning that can be judged."""
    known = catalog.builtin()
    rows = [read_rl(row, known) for row in shipped("throughput") if row["task"].startswith("rl")]
    return [row for row in rows if not isinstance(row, Unread) and row.measured]


class Problem:
    """Rows with the speed of their updates, and the numbers that are fitted: parameters and releases' slowdowns."""

    def __init__(self, rows: Sequence[RlReading]) -> None:
        self.rows = rows
        self.rates = [update_rates(row) for row in rows]
        self.names = list(engine_rows())
        self.older = sorted({row.release for row in rows if row.slowdown != 1.0})
        table = engine_rows()
        self.low = np.array([*(float(table[n]["low"]) for n in self.names), *(OLDER[0] for _ in self.older)])
        self.high = np.array(
            [*(float(table[n]["high"]) for n in self.names), *(OLDER[1] for _ in self.older)]
        )
        prior = np.array([*(float(table[n]["prior"]) for n in self.names), *(1.1 for _ in self.older)])
        share = (prior - self.low) / (self.high - self.low)
        self.prior = np.log(share / (1.0 - share))

    def values(self, free: Floats) -> Floats:
        """Parameters between their bounds."""
        return np.asarray(self.low + (self.high - self.low) / (1.0 + np.exp(-free)))

    def errors(self, free: Floats) -> Floats:
        """Logarithms of predicted over measured step time."""
        values = self.values(free)
        achieved = Engine(**dict(zip(self.names, values.tolist(), strict=False)))
        slowdown = dict(zip(self.older, values[len(self.names) :], strict=True))
        out = []
        for row, rates in zip(self.rows, self.rates, strict=True):
            item, samples = row.reading, row.samples
            devices = (item.nodes + row.places[0].generating) * item.node.accelerators
            tokens = samples.prompts * (samples.prompt_tokens + samples.response_tokens)
            measured = tokens / float(row.measured or 1.0) / devices
            step = float(step_of(row, rates, achieved).step_s[0]) * slowdown.get(row.release, 1.0)
            out.append(np.log(min(step, 1e9) / measured))
        return np.array(out)

    def fit(self, seen: NDArray[np.bool_] | None = None) -> tuple[Floats, Floats]:
        """The most probable numbers given the rows that are seen (or all), and the derivatives of the errors there."""
        counted = np.ones(len(self.rows)) if seen is None else seen.astype(float)

        def misfit(free: Floats) -> Floats:
            return np.concatenate(
                [self.errors(free) * counted / ERROR_SCALE, (free - self.prior) / PRIOR_SCALE]
            )

        found = least_squares(misfit, self.prior, loss="soft_l1", xtol=1e-3, ftol=1e-3)
        return np.asarray(found.x), np.asarray(found.jac[: len(self.rows)] * ERROR_SCALE)

    def without(self, held: NDArray[np.bool_], free: Floats, jacobian: Floats, errors: Floats) -> Floats:
        """Numbers fitted without the rows held back, along the derivatives of the whole fit."""

        def misfit(moved: Floats) -> Floats:
            near = (errors + jacobian @ (moved - free))[~held]
            return np.concatenate([near / ERROR_SCALE, (moved - self.prior) / PRIOR_SCALE])

        return np.asarray(least_squares(misfit, free, loss="soft_l1").x)


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def summary(title: str, errors: Floats) -> None:
    """Median, 90th percentile and bias of the relative error of step times."""
    relative = np.abs(np.expm1(errors))
    say(
        f"{title:44s} {len(errors):3d} rows  median {np.median(relative):.3f}  "
        f"p90 {np.quantile(relative, 0.9):.3f}  bias {np.median(np.expm1(errors)):+.3f}"
    )


def left_out(problem: Problem, groups: Sequence[str]) -> Floats:
    """Errors of every row by a fit that has not seen its group."""
    out, labels = np.zeros(len(groups)), np.array(groups)
    for group in sorted(set(groups)):
        held = labels == group
        out[held] = problem.errors(problem.fit(~held)[0])[held]
    return out


def one_left_out(problem: Problem, free: Floats, jacobian: Floats, errors: Floats) -> Floats:
    """Errors of every row by a fit that has not seen it, along the derivatives of the whole fit."""
    out = np.zeros(len(errors))
    for row in range(len(errors)):
        held = np.arange(len(errors)) == row
        out[row] = problem.errors(problem.without(held, free, jacobian, errors))[row]
    return out


def launches(rows: Sequence[RlReading]) -> None:
    """How well each host time of launches explains the rows (``step_time.LAUNCHES``)."""
    kept = step_time.LAUNCHES["rl"]
    for factor in (1.0, 2.0, 3.0, 4.0, 6.0):
        step_time.LAUNCHES["rl"] = factor
        problem = Problem(rows)
        summary(f"launches take {factor:g} times as long", problem.errors(problem.fit()[0]))
    step_time.LAUNCHES["rl"] = kept


def write(problem: Problem, free: Floats) -> None:
    """The parameters and slowdowns into the catalogue."""
    values = problem.values(free)
    fitted = dict(zip([*problem.names, *problem.older], values.tolist(), strict=True))
    for name, key, column in (
        ("rollout.csv", "parameter", "value"),
        ("rollout_releases.csv", "release", "slowdown"),
    ):
        path = CATALOG / name
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            columns, table = list(reader.fieldnames or []), list(reader)
        for row in table:
            if row[key] in fitted:
                row[column] = f"{fitted[row[key]]:.3g}"
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)


def main() -> None:
    """Run the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--launches", action="store_true", help="compare host times of launches")
    args = parser.parse_args()
    rows = found()
    problem = Problem(rows)
    free, jacobian = problem.fit()
    for name, value in zip([*problem.names, *problem.older], problem.values(free), strict=True):
        say(f"  {name:24s} {value:.4g}")
    errors = problem.errors(free)
    summary("all rows seen", errors)
    summary("one row left out", one_left_out(problem, free, jacobian, errors))
    summary("a model left out", left_out(problem, [row.reading.setup.shape.name for row in rows]))
    summary("an accelerator left out", left_out(problem, [row.reading.labels["generation"] for row in rows]))
    summary("a release left out", left_out(problem, [row.release for row in rows]))
    for row, error, rates in zip(rows, errors, problem.rates, strict=True):
        step = step_of(
            row, rates, Engine(**dict(zip(problem.names, problem.values(free).tolist(), strict=False)))
        )
        parts = [
            float(getattr(step, name)[0])
            for name in ("generation_s", "scoring_s", "update_s", "weight_transfer_s")
        ]
        shown = " ".join(f"{part:7.1f}" for part in parts)
        say(
            f"  {row.row_id:16s} {row.reading.setup.shape.name:16s} lag {row.lag} ratio {np.exp(error):.2f}  {shown}"
        )
    if args.launches:
        launches(rows)
    if args.write:
        write(problem, free)


if __name__ == "__main__":
    main()
