"""Prices that hold between days only, and billing modes of what is already there."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainplan.sites import find_sites
from trainplan_models.base import InputError
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import Catalog, load
from trainplan_models.node_prices import price_over_time

P5 = "aws/us-east-1/p5.48xlarge"
HEADER = "cloud,region,instance_type,mode,usd_per_node_h,source,as_of,valid_from,valid_until\n"
CASE = """
name: dated
{start}
tasks: [{{name: a, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192}}]
resources: {{accelerators: [H100-SXM], clouds: [aws], billing: [on-demand], discounts: {{aws: 10%}}{more}}}
"""
STARTED = "start: 2026-12-01"


def known(directory: Path, *rows: str) -> Catalog:
    text = HEADER + "".join(f"aws,us-east-1,p5.48xlarge,{row}\n" for row in rows)
    (directory / "dated_prices.csv").write_text(text, encoding="utf-8")
    return load(directory)


def days_and_prices(catalog: Catalog, start: str = STARTED, more: str = "") -> list[tuple[float, float]]:
    case = case_from_text(CASE.format(start=start, more=more))
    price = price_over_time(P5, "on-demand", case, catalog.pools())
    assert price is not None
    (site,) = (site for site in find_sites(case, catalog)[0] if site.name == P5)
    if price.changes:
        assert site.price_over_time["on-demand"] == price, "what is decided by is what is paid"
    return [(at_s / 86400.0, usd) for at_s, usd in zip(price.starts_s, price.usd_per_node_h, strict=True)]


def test_a_price_holds_from_its_first_to_its_last_day_less_the_discount(tmp_path: Path) -> None:
    catalog = known(tmp_path, "on-demand,30,contract,2026-11-01,2026-12-11,2026-12-20")
    listed = 0.9 * catalog.pools()[P5].usd_per_node_h["on-demand"]
    assert days_and_prices(catalog) == [(0.0, listed), (10.0, 27.0), (20.0, listed)]


def test_a_price_that_holds_already_begins_with_day_0_and_one_that_is_over_never(tmp_path: Path) -> None:
    catalog = known(
        tmp_path,
        "on-demand,30,contract,2026-11-01,2026-10-01,2026-12-10",
        "on-demand,20,contract,2026-11-01,,2026-11-30",
    )
    listed = 0.9 * catalog.pools()[P5].usd_per_node_h["on-demand"]
    assert days_and_prices(catalog) == [(0.0, 27.0), (10.0, listed)]


def test_changes_of_the_case_come_after_the_prices_of_the_catalogue(tmp_path: Path) -> None:
    catalog = known(tmp_path, "on-demand,30,contract,2026-11-01,2026-12-11,")
    more = ", price_changes: [{from: 2026-12-16, pools: [aws], cut: 50%}]"
    listed = 0.9 * catalog.pools()[P5].usd_per_node_h["on-demand"]
    assert days_and_prices(catalog, more=more) == [(0.0, listed), (10.0, 27.0), (15.0, 13.5)]


def test_a_case_without_a_day_0_is_told_to_have_one(tmp_path: Path) -> None:
    catalog = known(tmp_path, "on-demand,30,contract,2026-11-01,2026-12-11,")
    with pytest.raises(InputError, match=r"start: .* the case has no day 0\. Add a start"):
        days_and_prices(catalog, start="")


@pytest.mark.parametrize(
    ("row", "key", "words"),
    [
        ("on-demand,30,me,2026-11-01,2026-13-31,", "valid_from", "is no date"),
        ("on-demand,30,me,2026-11-01,20261231,", "valid_from", "is no date"),
        ("on-demand,30,me,2026-11-01,,", "valid_from", "holds all the time"),
        ("on-demand,30,me,2026-11-01,2026-12-31,2026-12-01", "valid_until", "before it begins"),
        ("flex-start,30,me,2026-11-01,2026-12-31,", "mode", "has no flex-start price"),
        ("ondemand,30,me,2026-11-01,2026-12-31,", "mode", "unknown billing mode"),
    ],
)
def test_rows_of_one_s_own_that_cannot_be_are_refused(tmp_path: Path, row: str, key: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        known(tmp_path, row)
    (problem,) = caught.value.problems
    assert (problem.key, problem.line) == (key, 2)
    assert problem.file.endswith("dated_prices.csv")


OWNED = """
name: held
tasks: [{{name: a, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192}}]
resources: {{billing: [owned]{more}}}
"""


def test_owned_alone_is_a_way_to_pay_where_something_is_owned(tmp_path: Path) -> None:
    more = ", owned: [{name: dc1, accelerator: H100-SXM, nodes: 4}]"
    sites, _ = find_sites(case_from_text(OWNED.format(more=more)), load(tmp_path))
    assert [(site.name, *site.usd_per_node_h) for site in sites] == [("dc1", "owned")]


def test_owned_is_refused_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'owned': the case lists none\. List the clusters"):
        find_sites(case_from_text(OWNED.format(more="")), load(tmp_path))
