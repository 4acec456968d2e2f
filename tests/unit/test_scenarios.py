from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trainplan.scenarios import Place, draw, few, forward_selection, reduce
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.simulation_world import Scenarios, Uncertainties, distribution, uncertainty_rows

EAST = Place("aws/us-east-1/p5", "aws", "us-east-1", "hopper", "spot", True)
EAST_TOO = Place("aws/us-east-1/p4d", "aws", "us-east-1", "ampere", "spot", True)
WEST = Place("aws/us-west-2/p5", "aws", "us-west-2", "hopper", "spot", True)
FIRM = Place("aws/us-east-1/p5", "aws", "us-east-1", "hopper", "on-demand", False)
PLACES = (EAST, EAST_TOO, WEST, FIRM)


def case_of(**assumptions: Any) -> Case:
    task = {"name": "pretrain", "kind": "pretrain", "model": "llama-3-8b", "tokens": "1T tokens"}
    return Case.model_validate({"name": "x", "tasks": [task], "assumptions": assumptions})


def correlation(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    return float(np.corrcoef(np.log(a), np.log(b))[0, 1])


def test_a_seed_stands_for_its_scenarios() -> None:
    one, same, other = (draw(PLACES, case_of(), 200, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.failure_factor, same.failure_factor)
    assert np.array_equal(one.spot_hazard_factor[EAST.pool], same.spot_hazard_factor[EAST.pool])
    assert not np.array_equal(one.failure_factor, other.failure_factor)


def test_one_place_more_changes_no_other() -> None:
    few_places, more = draw((EAST,), case_of(), 200, 1), draw(PLACES, case_of(), 200, 1)
    key = (EAST.pool, EAST.mode)
    assert np.array_equal(few_places.capacity_delay_s[key], more.capacity_delay_s[key])
    assert np.array_equal(few_places.spot_hazard_factor[EAST.pool], more.spot_hazard_factor[EAST.pool])
    factor = ("hopper", "dense")
    assert np.array_equal(few_places.throughput_factor[factor], more.throughput_factor[factor])


def test_zones_of_a_region_go_together_more_than_regions() -> None:
    draws = draw(PLACES, case_of(), 20_000, 3)
    east, too, west = (draws.spot_hazard_factor[place.pool] for place in (EAST, EAST_TOO, WEST))
    assert correlation(east, too) == pytest.approx(0.432, abs=0.02)
    assert correlation(east, west) == pytest.approx(0.136, abs=0.02)


def test_draws_follow_their_rows() -> None:
    draws = draw(PLACES, case_of(), 20_000, 3)
    assert np.median(draws.failure_factor) == pytest.approx(1.0, rel=0.01)
    assert np.std(np.log(draws.failure_factor)) == pytest.approx(0.5, rel=0.02)
    delay_s = draws.capacity_delay_s[FIRM.pool, "on-demand"]
    assert np.mean(delay_s > 0) == pytest.approx(0.3, abs=0.005)
    assert np.median(delay_s[delay_s > 0]) == pytest.approx(7200.0, rel=0.05)
    assert np.quantile(draws.redone_frac, 0.8) == pytest.approx(0.03, abs=1e-3)
    assert draws.weight.sum() == pytest.approx(1.0)


def test_spot_prices_drift_with_the_length_of_the_programme() -> None:
    year, quarter = (
        np.std(
            np.log(draw((EAST,), case_of(), 5000, 1, length_s=days * 86400.0).spot_price_factor[EAST.pool])
        )
        for days in (365.0, 365.0 / 4)
    )
    assert year == pytest.approx(0.5, rel=0.03)
    assert quarter == pytest.approx(year / 2.0, rel=1e-6)


def test_profiles_choose_their_own_rows() -> None:
    usual, small = (
        draw(PLACES, case_of(failure_profile=name), 5000, 1) for name in ("standard", "small-team")
    )
    assert np.median(small.hang_s) > 3 * np.median(usual.hang_s)
    assert small.redone_frac.mean() > 5 * usual.redone_frac.mean()


def test_the_case_has_the_last_word() -> None:
    own = {
        "throughput_factor.hopper/dense": "lognormal(median=1.1, sigma=0.05)",
        "capacity_delay_s.spot": "constant(value=60)",
        "redone_frac": "triangular(low=0, mode=0.1, high=0.2)",
    }
    draws = draw(PLACES, case_of(uncertainty=own), 5000, 1)
    assert np.median(draws.throughput_factor["hopper", "dense"]) == pytest.approx(1.1, rel=0.01)
    assert np.all(draws.capacity_delay_s[EAST.pool, "spot"] == 60.0)
    assert np.any(draws.capacity_delay_s[FIRM.pool, "on-demand"] > 60.0)
    assert np.median(draws.redone_frac) == pytest.approx(0.1, abs=0.005)
    assert 0.0 <= draws.redone_frac.min() <= draws.redone_frac.max() <= 0.2


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"throughput": "constant(value=1)"}, "unknown cause 'throughput'"),
        ({"failure_factor": "gauss(mean=1)"}, "unknown distribution 'gauss'"),
        ({"failure_factor": "lognormal(median=1)"}, "lognormal needs median, sigma"),
        ({"failure_factor": "constant(value=many)"}, "not name=number"),
        ({"failure_factor": "constant(value=inf)"}, "constant needs value"),
        ({"redone_frac": "quantiles(2=0.5)"}, "not name=number"),
    ],
)
def test_a_wrong_distribution_is_refused_by_its_key(own: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        draw(PLACES, case_of(uncertainty=own), 10, 1)
    assert caught.value.problems[0].key == f"assumptions.uncertainty.{next(iter(own))}"


def test_every_row_says_where_it_comes_from_and_can_be_drawn() -> None:
    normal = np.linspace(-3.0, 3.0, 601)
    for row in uncertainty_rows():
        assert row.source
        assert row.as_of
        values = distribution(row.distribution, row.parameters).draw(normal)
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values) >= 0.0), row.what
    assert Uncertainties().value("hang_frac") == pytest.approx(0.37)


# Few for many


def test_few_scenarios_keep_the_means_of_many() -> None:
    many = draw(PLACES, case_of(), 1200, 5)
    some = reduce(many, 60)
    assert some.count == 60
    assert some.weight.sum() == pytest.approx(1.0)
    for name in ("failure_factor", "recovery_factor", "experiments_factor"):
        whole, part = getattr(many, name), getattr(some, name)
        assert float(some.weight @ part) == pytest.approx(float(whole.mean()), rel=0.15)
    speed = ("hopper", "dense")
    kept = float(some.weight @ some.throughput_factor[speed])
    assert kept == pytest.approx(float(many.throughput_factor[speed].mean()), rel=0.03)


def test_importance_spends_the_scenarios_on_one_cause() -> None:
    many = draw(PLACES, case_of(), 800, 5)

    def error(some: Scenarios) -> float:
        levels = (0.1, 0.5, 0.9)
        order = np.argsort(some.redone_frac)
        below = np.cumsum(some.weight[order])
        found = some.redone_frac[order][np.searchsorted(below, levels)]
        return float(np.abs(found - np.quantile(many.redone_frac, levels)).sum())

    only = reduce(many, 20, {name: 0.0 for name in many.causes() if name != "redone work"})
    assert error(only) < error(reduce(many, 20))


def test_forward_selection_begins_in_the_middle_and_then_covers() -> None:
    points = np.array([[0.0], [0.1], [0.2], [10.0], [10.1]])
    weight = np.full(5, 0.2)
    first, _ = forward_selection(points, weight, 1)
    chosen, owner = forward_selection(points, weight, 2)
    assert first.tolist() == [2]
    assert sorted(points[chosen, 0] > 5.0) == [False, True]
    assert np.bincount(owner, weights=weight) == pytest.approx(sorted([0.6, 0.4], reverse=True))


def test_as_many_as_there_are_is_all_of_them() -> None:
    many = draw(PLACES, case_of(), 50, 5)
    assert reduce(many, 50) is many
    assert few(PLACES, case_of(), 30, 5).count == 30
