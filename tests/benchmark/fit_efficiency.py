"""Fits the efficiency tables of the catalogue and measures how far predictions of unseen sources are off.

    python tests/benchmark/fit_efficiency.py                       # cross-validation by source, printed
    python tests/benchmark/fit_efficiency.py --write               # fit on all rows, write tables and residuals
    python tests/benchmark/fit_efficiency.py --throughput mine.csv # more rows in the columns of the shipped table

The fit starts from ``priors/``, never from an earlier fit. The priors were set by hand from data sheets,
micro-benchmarks and judgement, and the software generations were told apart with all sources in view: leaving a
source out leaves out its rows, not what was learnt from it when the model was built.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models")]

from trainplan_models import catalog  # noqa: E402
from trainplan_models.efficiency import hardware_from, software_from  # noqa: E402
from trainplan_models.fitting import State, fit, save  # noqa: E402
from trainplan_models.measurements import Unread, read_rows  # noqa: E402
from trainplan_models.prediction import Candidates, predict  # noqa: E402
from trainplan_models.residuals import measure  # noqa: E402
from trainplan_models.validation import find, shipped  # noqa: E402

CATALOG = ROOT / "models" / "trainplan_models" / "catalog"
PRIORS = Path(__file__).parent / "priors"
SMALL = 10
"""Sources with fewer rows are left out together."""


def prior() -> State:
    """The tables the fit starts from."""
    return State(
        hardware_from(read_rows(PRIORS / "efficiency.csv")),
        software_from(read_rows(PRIORS / "efficiency_software.csv")),
    )


def observations(files: Sequence[Path]) -> list[Candidates]:
    """All rows that can be judged."""
    known = catalog.builtin()
    rows = [*shipped("throughput"), *(row for path in files for row in read_rows(path))]
    found = [find(row, known) for row in rows]
    return [item for item in found if not isinstance(item, Unread) and item.reading.measured]


def folds(found: Sequence[Candidates]) -> list[set[str]]:
    """Whole sources left out: each of the larger ones alone, the small ones together.

    Rounds of one benchmark by one organisation count as one source.
    """
    counts: dict[str, int] = {}
    for item in found:
        source = item.reading.labels["source"]
        counts[source] = counts.get(source, 0) + 1
    small = {source for source, count in counts.items() if count < SMALL}
    rounds = {source for source in counts if source.startswith("mlperf")}
    alone = [{source} for source in sorted(counts) if source not in small | rounds]
    return [group for group in (*alone, rounds, small - rounds) if group]


def ratios(found: Sequence[Candidates], state: State) -> list[float]:
    """Predicted over measured throughput."""
    out = []
    for item in found:
        labels = item.reading.labels
        guess = predict(
            item, hardware=state.hardware[labels["generation"]], software=state.software[labels["software"]]
        )
        out.append(guess.tokens_per_s_per_accelerator / float(item.reading.measured or 1.0))
    return out


def report(title: str, found: Sequence[Candidates], values: Sequence[float]) -> None:
    """Errors by generation, precision and kind of model."""
    groups: dict[str, list[float]] = {}
    for item, value in zip(found, values, strict=True):
        labels = item.reading.labels
        groups.setdefault("/".join(labels[k] for k in ("generation", "precision", "model")), []).append(value)
    sys.stdout.write(f"{title}\n")
    for name, members in sorted(groups.items()):
        error = np.abs(np.array(members) - 1.0)
        bias = float(np.median(members)) - 1.0
        sys.stdout.write(
            f"  {name:28s} {len(members):5d} rows  median {np.median(error):.3f}  "
            f"p90 {np.quantile(error, 0.9):.3f}  bias {bias:+.3f}\n"
        )


def without_source_factor(found: Sequence[Candidates], values: Sequence[float]) -> list[float]:
    """Ratios after each source's (and software generation's) own median: what one dated factor would leave."""
    keys = [
        tuple(item.reading.labels[k] for k in ("source", "software", "generation", "precision"))
        for item in found
    ]
    middle = {
        key: float(np.median([value for other, value in zip(keys, values, strict=True) if other == key]))
        for key in set(keys)
    }
    return [value / middle[key] for key, value in zip(keys, values, strict=True)]


def write_residuals(found: Sequence[Candidates], values: Sequence[float]) -> None:
    """Distributions by class, from predictions of sources that the fit had not seen."""
    pairs = [(item.reading.labels, 1.0 / value) for item, value in zip(found, values, strict=True)]
    with (CATALOG / "efficiency_residuals.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["class", "p10", "p50", "p90", "rows", "source", "as_of"])
        for name, item in sorted(measure(pairs).items()):
            numbers = [f"{item.p10:.4f}", f"{item.p50:.4f}", f"{item.p90:.4f}", item.rows]
            writer.writerow([name, *numbers, "cross-validation by source", "2026-09"])


def cross_validate(found: Sequence[Candidates], iterations: int) -> list[float]:
    """Predictions of every row by parameters fitted without its source."""
    out = [float("nan")] * len(found)
    for held in folds(found):
        train = [item for item in found if item.reading.labels["source"] not in held]
        state = fit(train, state=prior(), rounds=1, iterations=iterations)
        index = [i for i, item in enumerate(found) if item.reading.labels["source"] in held]
        for i, value in zip(index, ratios([found[i] for i in index], state), strict=True):
            out[i] = value
        sys.stdout.write(f"held out: {', '.join(sorted(held))}\n")
        sys.stdout.flush()
    return out


def main() -> None:
    """Run the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--throughput", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    found = observations(args.throughput)
    values = cross_validate(found, args.iterations)
    report("unseen sources", found, values)
    report("unseen sources, each with one factor of its own", found, without_source_factor(found, values))
    if args.write:
        state = fit(
            found, state=prior(), iterations=args.iterations, report=lambda line: print(line, flush=True)
        )
        report("all sources", found, ratios(found, state))
        owners = {item.reading.labels[key] for item in found for key in ("generation", "software")}
        save(state, CATALOG, owners)
        write_residuals(found, values)


if __name__ == "__main__":
    main()
