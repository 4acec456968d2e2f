"""Clusters, quotas, reservations and private prices read from the files people have."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from trainplan_models.base import InputError
from trainplan_models.catalog import builtin
from trainplan_models.import_kinds import KINDS, kind_of
from trainplan_models.imports import quotas_from_csv, reservations_from_csv
from trainplan_models.private_prices import private_prices
from trainplan_models.sinfo import SINFO_COMMAND, owned_from_sinfo

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

HEADER = "cloud,region,instance_type,mode,usd_per_node_h,usd_per_accelerator_h,discount,as_of\n"

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
    (quota,) = one.records
    assert (quota.on_demand, quota.spot, quota.reserved) == (8, 16, None)


@pytest.mark.parametrize(
    ("amount", "nodes"), [("768 vCPUs", 4), ("767 vcpu", 3), ("64 GPUs", 8), ("63 accelerators", 7)]
)
def test_quotas_as_clouds_count_them_become_whole_nodes(tmp_path: Path, amount: str, nodes: int) -> None:
    """A p5.48xlarge has 192 vCPUs and 8 GPUs."""
    (quota,) = quotas_from_csv(write(tmp_path, f"pool,spot\naws/us-east-1/p5.48xlarge,{amount}\n")).records
    assert quota.spot == nodes


def test_a_quota_says_where_it_is_from_and_of_when(tmp_path: Path) -> None:
    text = "pool,spot,as_of,source\naws/us-east-1/p5.48xlarge,8,2026-10,ticket 5\naws/us-east-2/p5.48xlarge,8,,\n"
    first, second = quotas_from_csv(write(tmp_path, text), source="console", as_of="2026-11-30").found
    assert (first.source, first.as_of) == ("ticket 5", "2026-10")
    assert (second.source, second.as_of) == ("console", "2026-11-30")


def test_a_quota_where_nothing_is_sold_is_left_out_and_said(tmp_path: Path) -> None:
    text = "pool,spot\naws/mars-1/p5.48xlarge,8\naws/us-east-1/p5.48xlarge,4\n"
    found = quotas_from_csv(write(tmp_path, text))
    assert [quota.pool for quota in found.records] == ["aws/us-east-1/p5.48xlarge"]
    (left_out,) = found.left_out
    assert left_out.line == 2 and "no price in the catalogue" in left_out.message


def test_the_same_pool_twice_is_a_mistake(tmp_path: Path) -> None:
    text = "pool,spot\naws/us-east-1/p5.48xlarge,8\naws/us-east-1/p5.48xlarge,4\n"
    with pytest.raises(InputError, match="twice, first in line 2") as caught:
        quotas_from_csv(write(tmp_path, text))
    assert caught.value.problems[0].line == 3


@pytest.mark.parametrize(
    ("text", "key", "line", "words"),
    [
        ("pool,ondemand\naws/us-east-1/p5.48xlarge,8\n", "ondemand", 1, "Did you mean on_demand"),
        ("pool,spot,spot\naws/us-east-1/p5.48xlarge,8,8\n", "spot", 1, "there twice"),
        ("pool,spot\naws/us-east-1/p5.48xlarge\n", "", 2, "1 cells where the header has 2"),
        ("pool,spot,as_of\naws/us-east-1/p5.48xlarge,8,soon\n", "as_of", 2, "is no date"),
        ("pool,spot\naws/us-east-1/p5.48xlarge,8 racks\n", "spot", 2, "no number of nodes"),
    ],
)
def test_a_table_says_column_and_line_of_a_mistake(
    tmp_path: Path, text: str, key: str, line: int, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        quotas_from_csv(write(tmp_path, text))
    problem = caught.value.problems[0]
    assert (problem.key, problem.line) == (key, line)
    assert problem.fix


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("InstanceType,AcceleratorName,Price\n", "price-list"),
        (HEADER, "prices"),
        ("Cloud,Region,Instance Type,On-Demand\n", "quotas"),
        ("name,pool,nodes\n", "reservations"),
        (SINFO, "sinfo"),
    ],
)
def test_the_kind_of_a_file_is_told_from_its_first_line(tmp_path: Path, text: str, kind: str) -> None:
    assert kind_of(write(tmp_path, text)) == kind
    assert kind in KINDS


@pytest.mark.parametrize(
    ("text", "words"), [("a,b\n1,2\n", "no kind of import: 'a,b'"), ("\n\n", "is empty")]
)
def test_a_file_of_no_kind_is_refused_with_the_kinds_there_are(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        kind_of(write(tmp_path, text))
    assert all(kind in caught.value.problems[0].fix for kind in KINDS)


def test_quota_of_nothing_is_a_limit(tmp_path: Path) -> None:
    (quota,) = quotas_from_csv(write(tmp_path, "pool,spot\naws/us-east-1/p5.48xlarge,0\n")).records
    assert quota.spot == 0


def test_every_mistake_of_a_quota_table_is_told_with_its_line(tmp_path: Path) -> None:
    text = (
        "pool,spot\naws/us-east-1/p5.49xlarge,8\naws/us-east-1/p5.48xlarge,many\naws/us-east-2/p5.48xlarge,\n"
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
    block, yearly = reservations_from_csv(write(tmp_path, text), start=date(2027, 3, 1)).records
    assert [(f.since, f.nodes) for f in block.free] == [("2027-03-10", 4), ("2027-03-20", 0)]
    assert (block.node_usd_per_h, block.accelerators_per_node, block.accelerator) == (0.0, 8, "H100-SXM")
    assert (yearly.nodes, yearly.free, yearly.node_usd_per_h) == (2, (), 3.5)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,aws/us-east-1/p5.48xlarge,0,,", "is no number of nodes"),
        ("a,aws/us-east-1/p5.48xlarge,4,2027-03-10,2027-03-01", "before it starts"),
        ("a,aws/us-east-1/p5.48xlarge,4,March,", "is no date"),
        ("a,aws/p5.48xlarge,4,,", "no machine"),
    ],
)
def test_reservations_that_cannot_be_are_refused(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        reservations_from_csv(write(tmp_path, f"name,pool,nodes,start,end\n{row}\n"), start=date(2027, 1, 1))


def test_a_reservation_that_is_over_is_left_out_and_said(tmp_path: Path) -> None:
    rows = "a,aws/us-east-1/p5.48xlarge,4,2026-03-10,2026-03-20\nb,aws/us-east-1/p5.48xlarge,4,,2027-03-20\n"
    found = reservations_from_csv(
        write(tmp_path, f"name,pool,nodes,start,end\n{rows}"), start=date(2027, 1, 1)
    )
    assert [one.name for one in found.records] == ["b"]
    (left_out,) = found.left_out
    assert left_out.line == 2 and "before day 0" in left_out.message


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


DATED = "cloud,region,instance_type,mode,usd_per_node_h,as_of,valid_from,valid_until\n"


def test_a_private_price_may_hold_between_days(tmp_path: Path) -> None:
    text = DATED + (
        "aws,us-east-1,p5.48xlarge,on-demand,30.5,2026-11-01,2026-12-20,\n"
        "aws,us-east-1,p5.48xlarge,on-demand,29.5,2026-11-01,2027-03-01,2027-03-31\n"
        "aws,us-east-1,p5.48xlarge,capacity-block,25,2026-11-01,,2026-12-31\n"
    )
    found = private_prices(write(tmp_path, text))
    assert (found.offers, found.commitments) == ((), ())
    assert [(row.mode, row.usd_per_node_h, row.valid_from, row.valid_until) for row in found.dated] == [
        ("on-demand", 30.5, "2026-12-20", ""),
        ("on-demand", 29.5, "2027-03-01", "2027-03-31"),
        ("capacity-block", 25.0, "", "2026-12-31"),
    ]


@pytest.mark.parametrize(
    ("row", "key", "words"),
    [
        ("on-demand,30.5,2026-11-01,soon,", "valid_from", "'soon' is no date"),
        ("on-demand,30.5,2026-11-01,,2026-13-01", "valid_until", "is no date"),
        ("on-demand,30.5,2026-11-01,2026-12-31,2026-12-01", "valid_until", "before it begins"),
        ("flex-start,30.5,2026-11-01,2026-12-31,", "mode", "no flex-start price for the days"),
    ],
)
def test_days_that_cannot_be_are_refused(tmp_path: Path, row: str, key: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        private_prices(write(tmp_path, f"{DATED}aws,us-east-1,p5.48xlarge,{row}\n"))
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (2, key)


def test_a_price_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    row = "aws,us-east-1,p5.48xlarge,on-demand,30,,,2026-08-31\n"
    with pytest.raises(InputError, match="twice, first in line 2"):
        private_prices(write(tmp_path, HEADER + row + row))


def test_a_price_for_one_region_wins_over_one_for_all(tmp_path: Path) -> None:
    rows = "aws,*,p5.48xlarge,on-demand,,,50%,2026-08-31\naws,us-east-1,p5.48xlarge,on-demand,20.5,,,2026-08-31\n"
    found = private_prices(write(tmp_path, HEADER + rows))
    usd = {offer.region: offer.usd_per_node_h for offer in found.offers}
    assert usd["us-east-1"] == 20.5
    assert usd["us-east-2"] == pytest.approx(0.5 * listed("us-east-2", "p5.48xlarge"), abs=1e-5)


def test_modes_that_follow_a_private_on_demand_price_are_said(tmp_path: Path) -> None:
    on_demand = "aws,us-east-1,p5.48xlarge,on-demand,20.5,,,2026-08-31\n"
    (warning,) = private_prices(write(tmp_path, HEADER + on_demand)).warnings
    assert "reserved-1y" in warning.message
    reserved = "aws,us-east-1,p5.48xlarge,reserved-1y,18,,,2026-08-31\n"
    warnings = private_prices(write(tmp_path, HEADER + on_demand + reserved)).warnings
    assert all("reserved-1y" not in warning.message for warning in warnings)


def test_spot_that_is_not_below_on_demand_is_said(tmp_path: Path) -> None:
    row = f"aws,us-east-1,p5.48xlarge,spot,{listed('us-east-1', 'p5.48xlarge')},,,2026-08-31\n"
    (warning,) = private_prices(write(tmp_path, HEADER + row)).warnings
    assert "not below on-demand" in warning.message


def test_tables_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        quotas_from_csv(tmp_path / "none.csv")
    with pytest.raises(InputError, match="has no rows"):
        quotas_from_csv(write(tmp_path, "pool,spot\n"))
