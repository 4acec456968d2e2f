"""Fits the efficiency tables of the catalogue and measures how far predictions of unseen sources are off.

    python tests/benchmark/fit_efficiency.py                       # fit, cross-validation by source, error split
    python tests/benchmark/fit_efficiency.py --write               # the same, and write tables and residuals
    python tests/benchmark/fit_efficiency.py --throughput mine.csv # more rows in the columns of the shipped table

The fit starts from ``priors/``, never from an earlier fit: ``efficiency.csv`` and ``efficiency_software.csv`` are
the values before any row is seen, ``families.csv`` says which generations share what they learn, ``pools.csv`` how
far a family and a generation may move. The priors were set by hand from data sheets, micro-benchmarks and
judgement, and the software generations were told apart with all sources in view: leaving a source out leaves out
its rows, not what was learnt from it when the model was built.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "models")]

from trainplan_models import catalog  # noqa: E402
from trainplan_models.efficiency import hardware_from, software_from  # noqa: E402
from trainplan_models.fitting import Fitted, fit, pools_from, save  # noqa: E402
from trainplan_models.fitting_rows import State  # noqa: E402
from trainplan_models.measurements import Unread, read_rows  # noqa: E402
from trainplan_models.prediction import Candidates, predict  # noqa: E402
from trainplan_models.residuals import measure  # noqa: E402
from trainplan_models.validation import find, ranking, shipped, validate  # noqa: E402

CATALOG = ROOT / "models" / "trainplan_models" / "catalog"
PRIORS = Path(__file__).parent / "priors"
SMALL = 10
"""Sources with fewer rows are left out together."""
HALVES_SEED = 1
NORMAL_MEDIAN, NORMAL_P90 = 0.674, 1.645
"""Median and 90th percentile of the absolute value of a normal variable, in standard deviations."""


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


def fitted_to(found: Sequence[Candidates], iterations: int, rounds: int) -> Fitted:
    """The fit to all rows."""
    return fit(
        found,
        prior=prior(),
        pools=pools_from(read_rows(PRIORS / "pools.csv")),
        families={row["owner"]: row["family"] for row in read_rows(PRIORS / "families.csv")},
        rounds=rounds,
        iterations=iterations,
        report=say,
    )


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def by_source(found: Sequence[Candidates]) -> list[set[str]]:
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


def report(
    title: str,
    found: Sequence[Candidates],
    values: Sequence[float],
    keys: Sequence[str] = ("generation", "precision", "model"),
) -> None:
    """Errors by generation, precision and kind of model."""
    groups: dict[str, list[float]] = {}
    for item, value in zip(found, values, strict=True):
        groups.setdefault("/".join(item.reading.labels[k] for k in keys), []).append(value)
    say(title)
    for name, members in sorted(groups.items()):
        error = np.abs(np.array(members) - 1.0)
        bias = float(np.median(members)) - 1.0
        say(
            f"  {name:34s} {len(members):5d} rows  median {np.median(error):.3f}  "
            f"p90 {np.quantile(error, 0.9):.3f}  bias {bias:+.3f}"
        )


def without_source_factor(found: Sequence[Candidates], values: Sequence[float]) -> list[float]:
    """Ratios after each source's (and software generation's) own median: what one dated factor would leave."""
    return _centred(found, values, lambda item: _class_of(item, "source"))


def _class_of(item: Candidates, *more: str) -> tuple[object, ...]:
    return tuple(item.reading.labels[k] for k in ("software", "generation", "precision", *more))


def _centred(
    found: Sequence[Candidates], values: Sequence[float], key: Callable[[Candidates], object]
) -> list[float]:
    keys = [key(item) for item in found]
    middle = {
        one: float(np.median([value for other, value in zip(keys, values, strict=True) if other == one]))
        for one in set(keys)
    }
    return [value / middle[one] for one, value in zip(keys, values, strict=True)]


def _configuration(item: Candidates) -> tuple[object, ...]:
    """All that the columns of the tables say about a run, but not who measured it."""
    reading = item.reading
    return (
        reading.setup,
        reading.accelerator.name,
        reading.nodes * reading.node.accelerators,
        tuple(sorted(reading.partial.items())),
        reading.recompute,
    )


def twins(found: Sequence[Candidates]) -> tuple[list[Candidates], list[float]]:
    """Rows that share their configuration and software generation with others, over the median of those.

    No model that sees only these columns can be closer to them than this.
    """
    counts: dict[tuple[object, ...], int] = {}
    for item in found:
        key = _configuration(item)
        counts[key] = counts.get(key, 0) + 1
    shared = [item for item in found if counts[_configuration(item)] > 1]
    return shared, _centred(shared, [float(item.reading.measured or 1.0) for item in shared], _configuration)


def _is_dense_gpu(labels: Mapping[str, str]) -> bool:
    tpu = labels["generation"].startswith("tpu")
    return labels["model"] == "dense" and not tpu and labels["precision"] != "fp4"


def _is_moe(labels: Mapping[str, str]) -> bool:
    return labels["model"] == "moe"


def _is_tpu(labels: Mapping[str, str]) -> bool:
    return labels["generation"].startswith("tpu")


KINDS: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "dense GPU, 16 and 8 bits": _is_dense_gpu,
    "mixture of experts": _is_moe,
    "TPU": _is_tpu,
}


def split(
    found: Sequence[Candidates], seen: Sequence[float], halves: Sequence[float], unseen: Sequence[float]
) -> None:
    """What the error of unseen sources is made of."""
    shape = without_source_factor(found, unseen)
    for name, belongs in KINDS.items():
        chosen = [i for i, item in enumerate(found) if belongs(item.reading.labels)]
        same, spread = twins([found[i] for i in chosen])
        say(f"error of {name}: median and 90th percentile of the relative error")
        for title, values in (
            ("all sources seen", [seen[i] for i in chosen]),
            ("half of the rows of every source seen", [halves[i] for i in chosen]),
            ("source not seen", [unseen[i] for i in chosen]),
            ("  after one level for each source (shape alone)", [shape[i] for i in chosen]),
            (f"  {len(same)} rows against others of the same configuration (irreducible)", spread),
        ):
            error = np.abs(np.array(values or [1.0]) - 1.0)
            say(f"  {title:66s} {np.median(error):6.3f} {np.quantile(error, 0.9):6.3f}")
        levels = _levels([found[i] for i in chosen], [seen[i] for i in chosen])
        if levels:
            deviation = float(np.std(np.log(levels)))
            title = f"{len(levels)} sources that share a software generation: levels alone"
            say(f"  {title:66s} {NORMAL_MEDIAN * deviation:6.3f} {NORMAL_P90 * deviation:6.3f}")


def sweeps(files: Sequence[Path], state: State, noise: float) -> None:
    """Rank correlation in sweeps of layouts, and the one that measuring twice would reach.

    Args:
        noise: standard deviation, on the logarithmic scale, of repeated measurements.
    """
    rows = [*shipped("throughput"), *(row for path in files for row in read_rows(path))]
    judged = validate(rows, [], [], catalog.builtin(), state).rows
    found = ranking(judged)
    random = np.random.default_rng(HALVES_SEED)
    again: dict[str, float] = {}
    for name in found:
        measured = np.array([row.measured for row in judged if row.sweep == name and row.ratio], dtype=float)
        repeated = measured * np.exp(noise * random.standard_normal((200, len(measured))))
        again[name] = float(np.mean([spearmanr(measured, once).statistic for once in repeated]))
    say(f"{len(found)} sweeps of layouts, median rank correlation")
    for title, values in (
        ("predicted with measured", [item["rank_correlation"] for item in found.values()]),
        (f"measured with itself under noise of {noise:.3f}", list(again.values())),
        ("regret of the layout predicted to be best", [item["regret"] for item in found.values()]),
    ):
        say(f"  {title:66s} {np.median(values):6.3f}")


def noise_of(found: Sequence[Candidates]) -> float:
    """Spread of repeated measurements of dense models, on the logarithmic scale, outliers bounded."""
    same, spread = twins([item for item in found if item.reading.labels["model"] == "dense"])
    counts: dict[tuple[object, ...], int] = {}
    for item in same:
        counts[_configuration(item)] = counts.get(_configuration(item), 0) + 1
    # The median of n rows takes up a share of their spread.
    lost = [counts[_configuration(item)] / (counts[_configuration(item)] - 1) for item in same]
    return float(np.sqrt(np.mean(np.minimum(np.log(spread) ** 2, 0.04) * lost)))


def _levels(found: Sequence[Candidates], values: Sequence[float]) -> list[float]:
    """Median ratios of sources that share software, accelerator generation and precision with another source."""
    groups: dict[tuple[object, ...], dict[str, list[float]]] = {}
    for item, value in zip(found, values, strict=True):
        sources = groups.setdefault(_class_of(item), {})
        sources.setdefault(item.reading.labels["source"], []).append(value)
    return [
        float(np.median(members))
        for sources in groups.values()
        if len(sources) > 1
        for members in sources.values()
    ]


def write_residuals(found: Sequence[Candidates], values: Sequence[float]) -> None:
    """Distributions by class, from predictions of sources that the fit had not seen."""
    pairs = [(item.reading.labels, 1.0 / value) for item, value in zip(found, values, strict=True)]
    with (CATALOG / "efficiency_residuals.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["class", "p10", "p50", "p90", "rows", "source", "as_of"])
        for name, item in sorted(measure(pairs).items()):
            numbers = [f"{item.p10:.4f}", f"{item.p50:.4f}", f"{item.p90:.4f}", item.rows]
            writer.writerow([name, *numbers, "cross-validation by source", "2026-09"])


def left_out(found: Sequence[Candidates], fitted: Fitted, folds: Sequence[np.ndarray]) -> list[float]:
    """Predictions of every row by parameters fitted without its fold."""
    out = np.full(len(found), np.nan)
    for held in folds:
        state = fitted.without(held)
        out[held] = ratios(
            [item for item, out_of_sight in zip(found, held, strict=True) if out_of_sight], state
        )
    return [float(value) for value in out]


def main() -> None:
    """Run the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--throughput", type=Path, action="append", default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    found = observations(args.throughput)
    fitted = fitted_to(found, args.iterations, 2)
    sources = np.array([item.reading.labels["source"] for item in found])
    coin = np.random.default_rng(HALVES_SEED).random(len(found)) < 0.5
    unseen = left_out(found, fitted, [np.isin(sources, sorted(group)) for group in by_source(found)])
    seen, halves = ratios(found, fitted.state), left_out(found, fitted, [coin, ~coin])
    report("unseen sources", found, unseen)
    report("unseen sources, source by source", found, unseen, ("source", "software", "model"))
    report("all sources", found, seen)
    split(found, seen, halves, unseen)
    sweeps(args.throughput, fitted.state, noise_of(found))
    if args.write:
        owners = {*fitted.state.hardware, *fitted.state.software}
        save(fitted.state, CATALOG, owners)
        write_residuals(found, unseen)


if __name__ == "__main__":
    main()
