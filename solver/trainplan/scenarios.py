"""The uncertainty that all of a plan shares, drawn with a seed, and few scenarios that stand for many.

Causes are drawn as correlated standard normals and put through the distributions of
``catalog/uncertainty.csv``, or of the case (``assumptions.uncertainty``), so that the same seed gives the same
worlds whatever the distributions are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan
from trainplan_models.residuals import Residuals, residuals_of
from trainplan_models.simulation_world import DENSE, MOE, Scenarios, Uncertainties

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

YEAR_S = 365.0 * 86400.0
ON_DEMAND = "on-demand"
DEFAULT_LENGTH_S = 60.0 * 86400.0
"""Length of a programme without a deadline, over which prices drift."""
TAIL_Z = 1.2815515655446004
"""Standard normal quantile of 90%."""
DRAWN = 1200
"""Scenarios from which few are selected."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Nodes of one pool under one billing mode."""

    pool: str
    cloud: str
    region: str
    generation: str
    """Of the accelerator."""
    mode: str
    preemptible: bool


def places_of(plan: Plan, catalog: Catalog) -> tuple[Place, ...]:
    """Where a plan runs, with the on-demand nodes that spot falls back to."""
    found = set()
    for s in plan.segments:
        chip = catalog.find_accelerator(s.accelerator)
        generation = "" if chip is None else chip.generation
        preemptible = catalog.modes[s.mode].preemptible
        found.add(Place(s.pool, s.cloud, s.region, generation, s.mode, preemptible))
        if preemptible:
            found.add(Place(s.pool, s.cloud, s.region, generation, ON_DEMAND, False))
    return tuple(sorted(found))


def for_plan(plan: Plan, case: Case, catalog: Catalog, count: int = 10_000, seed: int = 1) -> Scenarios:
    """Scenarios of the causes that matter to a plan.

    Args:
        plan: where and until when it runs.
        case: profiles and its own distributions.
        catalog: profiles.
        count: scenarios wanted, all of the same weight.
        seed: the same seed gives the same scenarios.

    Raises:
        InputError: the case names an unknown cause or a broken distribution.
    """
    return draw(places_of(plan, catalog), case, count, seed, length_s=max(plan.finish_s, 86400.0))


def draw(
    places: Iterable[Place], case: Case, count: int, seed: int, length_s: float | None = None
) -> Scenarios:
    """Joint draws of all causes for these places.

    Args:
        places: pools and modes that may be used.
        case: profiles and its own distributions.
        count: scenarios wanted, all of the same weight.
        seed: the same seed gives the same scenarios; one place more does not change those of the others.
        length_s: length of the programme, over which spot prices drift; absent, that of the deadline.

    Raises:
        InputError: the case names an unknown cause or a broken distribution.
    """
    where = sorted(set(places))
    known = Uncertainties(case.assumptions.uncertainty)
    failures = case.assumptions.failure_profile or "standard"
    spot_name = case.assumptions.spot_profile or "advisor"
    if length_s is None:
        length_s = case.deadline_s or DEFAULT_LENGTH_S

    def common(what: str, applies_to: str = failures) -> FloatArray:
        return known.of(what, applies_to).draw(_normal(seed, what, count))

    drift = float(np.sqrt(length_s / YEAR_S))
    spot = [place for place in where if place.preemptible]
    pools = {place.pool: place for place in spot}
    capacity = _by_pool(pools.values(), known, count, seed, "spot capacity")
    prices = _by_pool(pools.values(), known, count, seed, "spot price")
    waits = _by_pool(pools.values(), known, count, seed, "spot wait")
    return Scenarios(
        weight=np.full(count, 1.0 / count),
        throughput_factor=_throughput({place.generation for place in where}, known, count, seed),
        failure_factor=common("failure_factor"),
        soft_failure_factor=common("soft_failure_factor"),
        hang_s=common("hang_s"),
        recovery_factor=common("recovery_factor"),
        capacity_delay_s={
            (place.pool, place.mode): known.of("capacity_delay_s", place.mode).draw(
                _normal(seed, f"capacity {place.pool} {place.mode}", count)
            )
            for place in where
        },
        spot_hazard_factor={
            p: known.of("spot_hazard_factor", spot_name).draw(z) for p, z in capacity.items()
        },
        spot_wait_factor={p: known.of("spot_wait_factor", spot_name).draw(z) for p, z in waits.items()},
        spot_price_factor={
            p: known.of("spot_price_factor", pools[p].cloud).draw(z, drift) for p, z in prices.items()
        },
        redone_frac=common("redone_frac"),
        experiments_factor=common("experiments_factor"),
    )


def _rng(seed: int, what: str) -> Generator:
    """A stream of its own for each cause."""
    digest = hashlib.sha256(what.encode()).digest()
    return default_rng([seed, int.from_bytes(digest[:8], "little")])


def _normal(seed: int, what: str, count: int) -> FloatArray:
    """Standard normals, one from each of ``count`` equal slices of the distribution, in random order."""
    from scipy.special import ndtri

    rng = _rng(seed, what)
    return np.asarray(ndtri((rng.permutation(count) + rng.random(count)) / count))


def _by_pool(
    places: Iterable[Place], known: Uncertainties, count: int, seed: int, what: str
) -> dict[str, FloatArray]:
    """Normals by pool, correlated within a region and, less, between regions."""
    same = known.value("spot_correlation", "same-region")
    other = min(known.value("spot_correlation", "other-region"), same)
    world = _normal(seed, what, count)
    regions: dict[str, FloatArray] = {}
    found = {}
    for place in sorted(places):
        region = f"{what} {place.cloud}/{place.region}"
        if region not in regions:
            regions[region] = _normal(seed, region, count)
        own = _normal(seed, f"{what} {place.pool}", count)
        parts = np.sqrt(other) * world + np.sqrt(same - other) * regions[region]
        found[place.pool] = np.asarray(parts + np.sqrt(1.0 - same) * own)
    return found


def _throughput(
    generations: Iterable[str], known: Uncertainties, count: int, seed: int
) -> dict[tuple[str, str], FloatArray]:
    """Real over predicted throughput by generation and kind of model, from the measured residuals."""
    correlation = known.value("throughput_correlation")
    common = _normal(seed, "throughput", count)
    found = {}
    for generation in sorted(generations):
        own = _normal(seed, f"throughput {generation}", count)
        z = np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own
        for kind in (DENSE, MOE):
            told = known.find("throughput_factor", f"{generation}/{kind}")
            if told is None:
                labels = {"generation": generation, "precision": "16", "model": kind, "size": ""}
                found[generation, kind] = _two_sided(residuals_of(labels), z)
            else:
                found[generation, kind] = told.draw(z)
    return found


def _two_sided(measured: Residuals, z: FloatArray) -> FloatArray:
    """A lognormal on either side of the median, through its P10 and P90."""
    low = np.log(measured.p50 / measured.p10) / TAIL_Z
    high = np.log(measured.p90 / measured.p50) / TAIL_Z
    return np.asarray(measured.p50 * np.exp(np.where(z < 0.0, low, high) * z))


# Few for many


def few(
    places: Iterable[Place],
    case: Case,
    count: int,
    seed: int,
    length_s: float | None = None,
    weights: Mapping[str, float] | None = None,
) -> Scenarios:
    """``count`` scenarios with weights that stand for many, for use in an optimization."""
    return reduce(draw(places, case, max(DRAWN, 15 * count), seed, length_s), count, weights)


def reduce(scenarios: Scenarios, count: int, importance: Mapping[str, float] | None = None) -> Scenarios:
    """Fewer scenarios near the many: fast forward selection (Heitsch and Roemisch, 2003).

    One scenario after the other is chosen so that the probability-weighted distance of all to the nearest
    chosen one falls most; each chosen one then takes the weight of those nearest to it.

    Args:
        scenarios: the many.
        count: how many are wanted.
        importance: weight of a cause in the distance, by its name in ``Scenarios.causes``; 1 where not given.
    """
    if count >= scenarios.count:
        return scenarios
    points = _points(scenarios, importance or {})
    chosen, owner = forward_selection(points, scenarios.weight, count)
    weight = np.bincount(owner, weights=scenarios.weight, minlength=count)
    return scenarios.take(chosen, weight / weight.sum())


def _points(scenarios: Scenarios, importance: Mapping[str, float]) -> FloatArray:
    """Scenarios as points: every cause with spread one, on a logarithmic scale where it is a factor."""
    columns = []
    for name, draws in scenarios.causes().items():
        for values in draws:
            scaled = np.log(values) if values.min() > 0.0 else np.log1p(values / max(values.mean(), 1e-12))
            share = importance.get(name, 1.0) / np.sqrt(len(draws))
            columns.append(share * (scaled - scaled.mean()) / max(float(scaled.std()), 1e-12))
    return np.stack(columns, axis=1) if columns else np.zeros((scenarios.count, 1))


def forward_selection(points: FloatArray, weight: FloatArray, count: int) -> tuple[IntArray, IntArray]:
    """Points chosen one after the other to be near all, and for each point the nearest chosen one."""
    squares = (points**2).sum(axis=1)
    gaps = squares[:, None] + squares[None, :] - 2.0 * points @ points.T
    gaps = np.sqrt(np.maximum(gaps, 0.0)).astype(np.float32)
    nearest = np.full(len(points), np.inf, np.float32)
    chosen: list[int] = []
    mass = weight.astype(np.float32)
    for _ in range(count):
        total = mass @ np.minimum(gaps, nearest[:, None])
        total[chosen] = np.inf
        best = int(np.argmin(total))
        chosen.append(best)
        nearest = np.minimum(nearest, gaps[:, best])
    picks: Sequence[int] = sorted(chosen)
    index = np.asarray(picks, dtype=np.int64)
    return index, np.argmin(gaps[:, index], axis=1).astype(np.int64)
