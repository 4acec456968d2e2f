from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from trainplan_models import risk, spot
from trainplan_models.base import InputError
from trainplan_models.catalog.records import SpotBand, SpotProfile

with (Path(__file__).parent / "risk_vectors.csv").open(newline="", encoding="utf-8") as file:
    RISK = list(csv.DictReader(file))


def profile(rate: float = 0.05, correlation: float = 0.5, name: str = "p", band: str = "") -> SpotProfile:
    return SpotProfile(
        name=name,
        band=band,
        preemptions_per_node_h=rate,
        gang_correlation=correlation,
        reacquire_s=1800.0,
        source="test",
        as_of="2024",
    )


@dataclass(frozen=True)
class Bands:
    """The two tables of the catalogue that spot profiles come from."""

    spot: dict[tuple[str, str], SpotProfile]
    spot_bands: tuple[SpotBand, ...] = field(default=())


@pytest.mark.parametrize(("correlation", "power"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)])
def test_a_gang_is_lost_less_often_the_more_its_nodes_go_together(correlation: float, power: float) -> None:
    nodes = np.array([1, 4, 16])
    rate = spot.gang_loss_per_s(nodes, profile(0.36, correlation))
    assert rate == pytest.approx(1e-4 * nodes**power)


def test_availability_of_a_gang_against_simulation() -> None:
    gang = profile(0.2, 0.3)
    rng = default_rng(11)
    up = rng.exponential(float(spot.gang_up_s(16, gang)), 50_000).sum()
    down = rng.exponential(1800.0, 50_000).sum()
    assert up / (up + down) == pytest.approx(float(spot.availability_frac(16, gang)), rel=0.01)


def test_a_gang_is_not_its_nodes_one_by_one() -> None:
    gang = profile(0.2, 0.8)
    one = float(spot.availability_frac(1, gang))
    assert float(spot.availability_frac(16, gang)) > one**16


def test_paid_while_up_and_useful_while_working() -> None:
    shares = spot.shares(np.array([1, 16]), profile(), np.array([0.9, 0.8]))
    assert shares.paid_frac == pytest.approx(spot.availability_frac(np.array([1, 16]), profile()))
    assert shares.useful_frac / shares.paid_frac == pytest.approx([0.9, 0.8])


def test_capacity_that_is_never_taken_is_always_there() -> None:
    assert float(spot.availability_frac(16, profile(0.0))) == pytest.approx(1.0)


def test_useful_hour_mixes_spot_with_its_fallback() -> None:
    assert float(spot.usd_per_useful_h(10.0, 30.0, 0.75, 0.5)) == pytest.approx(30.0)


def _bands(**kwargs: SpotProfile) -> Bands:
    rows = {(row.name, row.band): row for row in kwargs.values()}
    band = SpotBand(cloud="aws", region="us-east-1", instance_type="p5", band="<5%", source="t", as_of="t")
    return Bands(rows, (band,))


def test_a_pool_follows_its_published_band() -> None:
    known = _bands(low=profile(0.1, band="<5%"), high=profile(0.9, band=">20%"))
    found = spot.profile_for(known, "aws", "us-east-1", "p5", "p")  # type: ignore[arg-type]
    assert found.band == "<5%"


def test_a_pool_without_a_band_takes_the_whole_profile_or_the_worst_band() -> None:
    known = _bands(low=profile(0.1, band="<5%"), high=profile(0.9, band=">20%"), all=profile(0.4))
    place = ("aws", "eu-west-1", "p5", "p")
    assert spot.profile_for(known, *place).band == ""  # type: ignore[arg-type]
    without = Bands({key: row for key, row in known.spot.items() if key[1]}, known.spot_bands)
    assert spot.profile_for(without, *place).band == ">20%"  # type: ignore[arg-type]


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'calm'.*Known: p"):
        spot.profile_for(_bands(all=profile()), "aws", "r", "i", "calm")  # type: ignore[arg-type]


@pytest.mark.parametrize("row", RISK, ids=lambda r: f"{r['case']}-{r['alpha']}")
def test_cvar_vector(row: dict[str, str]) -> None:
    costs, probabilities = json.loads(row["costs"]), json.loads(row["probs"])
    value = risk.cvar(costs, float(row["alpha"]), probabilities)
    assert value == pytest.approx(float(row["cvar"]), rel=float(row["rtol"]))


def test_cvar_is_the_minimum_over_thresholds() -> None:
    rng = default_rng(5)
    costs, weights = rng.lognormal(3.0, 1.0, 40), rng.dirichlet(np.ones(40))
    for alpha in (0.1, 0.5, 0.9, 0.95):
        best = min(theta + float(weights @ np.maximum(costs - theta, 0)) / (1 - alpha) for theta in costs)
        assert risk.cvar(costs, alpha, weights) == pytest.approx(best)


def test_value_at_risk_and_the_worst_outcome() -> None:
    costs = [3.0, 1.0, 2.0, 4.0]
    assert [risk.value_at_risk(costs, a) for a in (0.0, 0.25, 0.5, 0.51, 1.0)] == [1, 1, 2, 3, 4]
    assert risk.cvar(costs, 1.0) == 4.0
    assert risk.cvar([1.0, 9.0], 1.0, [1.0, 0.0]) == 1.0


@pytest.mark.parametrize(
    ("costs", "alpha", "weights"),
    [([], 0.5, None), ([1.0], 1.5, None), ([1.0, 2.0], 0.5, [0.5, 0.6]), ([1.0, 2.0], 0.5, [1.5, -0.5])],
)
def test_outcomes_that_make_no_distribution_are_refused(
    costs: list[float], alpha: float, weights: list[float] | None
) -> None:
    with pytest.raises(InputError):
        risk.cvar(costs, alpha, weights)
