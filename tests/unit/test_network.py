from __future__ import annotations

from dataclasses import replace

import pytest

from trainplan_models import network
from trainplan_models.base import InputError
from trainplan_models.case import Case, Dataset
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import TransferPrice
from trainplan_models.network import Place

EMPTY = Catalog({}, {}, (), {}, (), (), (), {}, {}, (), {}, {})


def price(
    region: str, to: str, usd: float, start: float = 0.0, end: float | None = None, cloud: str = "aws"
) -> TransferPrice:
    return TransferPrice(
        cloud=cloud, region=region, to=to, from_gb=start, to_gb=end, usd_per_gb=usd, source="t", as_of="t"
    )


INTERNET = (
    price("us-east-1", "internet", 0.09, 0.0, 10_240.0),
    price("us-east-1", "internet", 0.085, 10_240.0, 51_200.0),
    price("us-east-1", "internet", 0.07, 51_200.0),
)
KNOWN = replace(
    EMPTY,
    transfers=(
        *INTERNET,
        price("us-east-1", "cross-region", 0.02),
        price("us-east-1", "us-east-2", 0.01),
        price("us-west-1", "cross-region", 0.03),
        price("us-west-1", "internet", 0.1),
    ),
)
CASE = Case.model_validate(
    {
        "name": "c",
        "tasks": [{"name": "t", "kind": "pretrain", "model": "llama-3-8b", "tokens": "1B tokens"}],
        "resources": {"owned": [{"name": "dc1", "accelerator": "A100-SXM-80GB", "nodes": "4 nodes"}]},
    }
)
EAST = Place("aws", "us-east-1")
OWN = Place("dc1", "dc1", rented=False)


@pytest.mark.parametrize(
    ("gb", "usd"),
    [(0.0, 0.0), (1000.0, 90.0), (10_240.0, 921.6), (60_000.0, 921.6 + 40_960 * 0.085 + 8_800 * 0.07)],
)
def test_egress_goes_through_its_volume_brackets(gb: float, usd: float) -> None:
    assert network.transfer_usd(KNOWN, "aws", "us-east-1", "gcp", "us-central1", gb * 1e9) == pytest.approx(
        usd
    )


@pytest.mark.parametrize(("to", "usd"), [("us-east-1", 0.0), ("us-east-2", 10.0), ("eu-west-1", 20.0)])
def test_a_terabyte_to_another_region(to: str, usd: float) -> None:
    assert network.transfer_usd(KNOWN, "aws", "us-east-1", "aws", to, 1e12) == pytest.approx(usd)


def test_an_owned_cluster_sends_for_nothing_and_is_reached_over_the_internet() -> None:
    assert network.move_usd(KNOWN, OWN, EAST, 1e12) == 0.0
    assert network.move_usd(KNOWN, EAST, OWN, 1e12) == pytest.approx(90.0)


def test_a_second_region_is_the_cheapest_to_reach() -> None:
    assert network.second_region_usd(KNOWN, EAST, 1e12) == pytest.approx(10.0)
    assert network.second_region_usd(KNOWN, Place("aws", "us-west-1"), 1e12) == pytest.approx(30.0)
    assert network.second_region_usd(KNOWN, OWN, 1e12) == 0.0


def test_a_dataset_is_brought_to_where_the_task_runs() -> None:
    data = Dataset.model_validate({"size": "2 TB", "at": "aws/us-east-1"})
    assert network.staging_usd(KNOWN, CASE, data, EAST) == 0.0
    assert network.staging_usd(KNOWN, CASE, data, Place("aws", "us-east-2")) == pytest.approx(20.0)
    assert network.staging_usd(KNOWN, CASE, data, Place("gcp", "us-central1")) == pytest.approx(180.0)
    own = Dataset.model_validate({"size": "2 TB", "at": "dc1"})
    assert network.staging_usd(KNOWN, CASE, own, EAST) == 0.0
    assert network.staging_usd(KNOWN, CASE, Dataset.model_validate({"size": "2 TB"}), EAST) == 0.0


@pytest.mark.parametrize("at", ["aws", "aws/", "/us-east-1"])
def test_a_dataset_that_is_nowhere_is_refused(at: str) -> None:
    data = Dataset.model_construct(size_bytes=1e12, at=at, format_factor=1.0)
    with pytest.raises(InputError, match="is not a place"):
        network.place_of_dataset(data, CASE)


def test_a_pool_with_the_name_of_an_owned_cluster_is_a_place_of_its_own() -> None:
    assert network.pool_place("dc1", "owned", "", CASE) == OWN
    assert network.pool_place("dc1/x", "dc1", "dc1", CASE) == OWN
    assert network.pool_place("aws/us-east-1/p5", "aws", "us-east-1", CASE) == EAST
    assert (str(OWN), str(EAST)) == ("dc1", "aws/us-east-1")
