"""Clusters, quotas, reservations and private prices read from the files people have."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from trainplan_models.base import InputError
from trainplan_models.catalog import builtin
from trainplan_models.imports import SINFO_COMMAND, owned_from_sinfo, quotas_from_csv, reservations_from_csv
from trainplan_models.private_prices import private_prices

SHARED = Path(__file__).parents[2].parent / "shared"

SINFO = """\
n1|spot|idle|96|1000000|gpu:h100:8(S:0-1)|(null)|none
n1|train*|idle|96|1000000|gpu:h100:8(S:0-1)|(null)|none
n2|train*|allocated|96|1000000|gpu:h100:8|(null)|none
n3|train*|mixed|96|1000000|gpu:h100:8|(null)|none
n4|train*|down*|96|1000000|gpu:h100:8|(null)|Not responding
n5|train*|drained|96|1000000|gpu:h100:8|(null)|disk
big[01-03]|big|idle|128|2000000|gpu:h200:8|(null)|none
login|cpu|idle|16|64000|(null)|(null)|none
"""

EXACT = {"h100": "H100-SXM", "h200": "H200-SXM"}


def write(folder: Path, text: str) -> Path:
    file = folder / "table.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_sinfo_gives_one_pool_for_each_kind_of_node() -> None:
    found = owned_from_sinfo(SINFO, name="dc1", accelerators=EXACT)
    assert [(p.owned.name, p.owned.accelerator, p.owned.nodes, p.idle, p.broken) for p in found.pools] == [
        ("dc1-h100-8", "H100-SXM", 3, 1, 2),
        ("dc1-h200-8", "H200-SXM", 3, 3, 0),
    ]
    assert found.pools[0].partitions == ("spot", "train")
    assert found.warnings == ()


def test_sinfo_of_one_kind_keeps_the_name() -> None:
    found = owned_from_sinfo("n[1-2,9]|p|idle|8|1|gpu:h100:4|-|-\n", name="lab", accelerators=EXACT)
    (pool,) = found.pools
    assert (pool.owned.name, pool.owned.nodes, pool.owned.accelerators_per_node) == ("lab", 3, 4)


def test_sinfo_says_when_a_gpu_type_is_ambiguous() -> None:
    found = owned_from_sinfo("n1|p|idle|8|1|gpu:a100:8|-|-\n")
    (warning,) = found.warnings
    assert "could be" in warning.message
    assert "A100-SXM-80GB" in warning.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n1|p|idle|8|1|gpu:zz9:8|-|-\n", "'zz9' is not in the catalogue"),
        ("n1 p idle\n", "six are needed"),
        ("n1|p|idle|8|1|(null)|-|-\n", "no node has accelerators"),
        ("", "no node has accelerators"),
    ],
)
def test_sinfo_that_cannot_be_used_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        owned_from_sinfo(text)


def test_sinfo_refusal_says_how_to_make_it() -> None:
    with pytest.raises(InputError) as caught:
        owned_from_sinfo("garbage\n")
    assert SINFO_COMMAND in str(caught.value)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of reference data is not there")
def test_sinfo_of_a_real_cluster() -> None:
    text = (SHARED / "data" / "actuals" / "sample_sinfo.psv").read_text(encoding="utf-8")
    (pool,) = owned_from_sinfo(text, accelerators=EXACT).pools
    assert (pool.owned.nodes, pool.owned.accelerators_per_node, pool.idle) == (4, 8, 4)


def test_quotas_in_both_forms(tmp_path: Path) -> None:
    one = quotas_from_csv(
        write(tmp_path, "pool,on-demand,spot,capacity_block\naws/us-east-1/p5.48xlarge,8,16 nodes,\n\n")
    )
    three = quotas_from_csv(
        write(tmp_path, "Cloud,Region,Instance Type,On-Demand,Spot\naws,us-east-1,p5.48xlarge,8,16\n")
    )
    assert one == three
    assert (one[0].on_demand, one[0].spot, one[0].reserved) == (8, 16, None)


def test_quota_of_nothing_is_a_limit(tmp_path: Path) -> None:
    (quota,) = quotas_from_csv(write(tmp_path, "pool,spot\naws/us-east-1/p5.48xlarge,0\n"))
    assert quota.spot == 0


def test_every_mistake_of_a_quota_table_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        "pool,spot\naws/us-east-1/p5.49xlarge,8\naws/us-east-1/p5.48xlarge,many\naws/us-east-1/p5.48xlarge,\n"
    )
    with pytest.raises(InputError) as caught:
        quotas_from_csv(write(tmp_path, text))
    problems = caught.value.problems
    assert [problem.line for problem in problems] == [2, 3, 4]
    assert "Did you mean aws/REGION/p5." in problems[0].fix
    assert "limits nothing" in problems[2].message


def test_reservations_become_owned_pools_for_their_time(tmp_path: Path) -> None:
    text = (
        "name,pool,nodes,start,end,usd_per_node_h\n"
        "block,aws/us-east-1/p5.48xlarge,4,2027-03-10,2027-03-20,\n"
        "yearly,aws/us-east-1/p5.48xlarge,2,2026-01-01,,3.5\n"
    )
    block, yearly = reservations_from_csv(write(tmp_path, text), start=date(2027, 3, 1))
    assert [(f.since, f.nodes) for f in block.free] == [("2027-03-10", 4), ("2027-03-20", 0)]
    assert (block.node_usd_per_h, block.accelerators_per_node, block.accelerator) == (0.0, 8, "H100-SXM")
    assert (yearly.nodes, yearly.free, yearly.node_usd_per_h) == (2, (), 3.5)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,aws/us-east-1/p5.48xlarge,0,,", "is no number of nodes"),
        ("a,aws/us-east-1/p5.48xlarge,4,2027-03-10,2027-03-01", "before it starts"),
        ("a,aws/us-east-1/p5.48xlarge,4,March,", "is no date"),
        ("a,aws/us-east-1/p5.48xlarge,4,2026-03-10,2026-03-20", "before day 0"),
        ("a,aws/p5.48xlarge,4,,", "no machine"),
    ],
)
def test_reservations_that_cannot_be_are_refused(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        reservations_from_csv(write(tmp_path, f"name,pool,nodes,start,end\n{row}\n"), start=date(2027, 1, 1))


HEADER = "cloud,region,instance_type,mode,usd_per_node_h,usd_per_accelerator_h,discount,as_of\n"


def listed(region: str, machine: str) -> float:
    return next(
        o.usd_per_node_h
        for o in builtin().offers
        if (o.region, o.instance_type, o.mode) == (region, machine, "on-demand")
    )


def test_private_prices_in_every_form(tmp_path: Path) -> None:
    text = HEADER + (
        "aws,us-east-1,p5.48xlarge,on-demand,30.5,,,2026-08-31\n"
        "aws,us-east-1,p4d.24xlarge,on-demand,,2.0,,2026-08-31\n"
        "aws,*,p4d.24xlarge,spot,,,60%,2026-08-31\n"
        "aws,us-east-1,p5.48xlarge,reserved-1y,25,,,2026-08-31\n"
    )
    found = private_prices(write(tmp_path, text), source="contract 7")
    by_key = {(o.region, o.instance_type, o.mode): o for o in found.offers}
    assert by_key["us-east-1", "p5.48xlarge", "on-demand"].usd_per_node_h == 30.5
    assert by_key["us-east-1", "p4d.24xlarge", "on-demand"].usd_per_node_h == 16.0
    spot = by_key["us-east-1", "p4d.24xlarge", "spot"]
    assert spot.usd_per_node_h == pytest.approx(0.4 * listed("us-east-1", "p4d.24xlarge"), abs=1e-5)
    assert len(by_key) > 4
    (reserved,) = found.commitments
    assert (reserved.mode, reserved.regions, reserved.usd_per_node_h) == ("reserved-1y", ("us-east-1",), 25.0)
    assert {row.source for row in (*found.offers, *found.commitments)} == {"contract 7"}
    assert {row.as_of for row in (*found.offers, *found.commitments)} == {"2026-08-31"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("aws,us-east-1,p5.49xlarge,on-demand,30,,,2026-08-31", "no machine"),
        ("aws,us-east-1,p5.48xlarge,ondemand,30,,,2026-08-31", "no billing mode"),
        ("aws,us-east-1,p5.48xlarge,owned,30,,,2026-08-31", "no billing mode"),
        ("aws,us-east-1,p5.48xlarge,on-demand,0,,,2026-08-31", "for nothing"),
        ("aws,us-east-1,p5.48xlarge,on-demand,9999,,,2026-08-31", "list price"),
        ("aws,us-east-1,p5.48xlarge,on-demand,nan,,,2026-08-31", "is no price"),
        ("aws,us-east-1,p5.48xlarge,on-demand,-3,,,2026-08-31", "is no price"),
        ("aws,us-east-1,p5.48xlarge,on-demand,30,4,,2026-08-31", "one price is needed"),
        ("aws,us-east-1,p5.48xlarge,on-demand,,,,2026-08-31", "one price is needed"),
        ("aws,us-east-1,p5.48xlarge,on-demand,,,12,2026-08-31", "is no discount"),
        ("aws,us-east-1,p5.48xlarge,on-demand,,,100%,2026-08-31", "is no discount"),
        ("aws,mars-1,p5.48xlarge,on-demand,,,12%,2026-08-31", "no on-demand price in mars-1"),
        ("aws,us-east-1,p5.48xlarge,on-demand,30,,,", "no date"),
        ("aws,us-east-1,p5.48xlarge,on-demand,30,,,soon", "is no date"),
    ],
)
def test_private_prices_that_cannot_be_are_refused(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        private_prices(write(tmp_path, f"{HEADER}{row}\n"))
    assert caught.value.problems[0].line == 2


def test_a_price_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    row = "aws,us-east-1,p5.48xlarge,on-demand,30,,,2026-08-31\n"
    with pytest.raises(InputError, match="2 times"):
        private_prices(write(tmp_path, HEADER + row + row))


def test_spot_that_is_not_below_on_demand_is_said(tmp_path: Path) -> None:
    row = f"aws,us-east-1,p5.48xlarge,spot,{listed('us-east-1', 'p5.48xlarge')},,,2026-08-31\n"
    (warning,) = private_prices(write(tmp_path, HEADER + row)).warnings
    assert "not below on-demand" in warning.message


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        quotas_from_csv(tmp_path / "none.csv")
    with pytest.raises(InputError, match="has no rows"):
        quotas_from_csv(write(tmp_path, "pool,spot\n"))
