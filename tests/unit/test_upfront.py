"""Reserved terms paid up front in part: rows of data, from the catalogue to when they are paid."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainplan.planning import plan
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin, load
from trainplan_models.over_time import payments

CASE = """
name: upfront
deadline: 300 days
tasks:
  - name: a
    kind: continue
    model: llama-2-70b
    tokens: 800B tokens
    sequence_length: 4096
    global_batch: 2M tokens
resources:
  accelerators: [H100-SXM]
  clouds: [aws]
  regions: [us-east-1]
  billing: [{mode}]
  node_counts: [4 nodes]
  max_nodes: 4
"""
PRICE = "mode,cloud,instance_type,usd_per_node_h,source,as_of\n{mode},aws,p5.48xlarge,30,contract,2026-11\n"


@pytest.mark.parametrize(("mode", "frac"), [("reserved-1y-partial", 0.5), ("reserved-1y-upfront", 1.0)])
def test_what_is_paid_up_front_is_paid_on_the_first_day(tmp_path: Path, mode: str, frac: float) -> None:
    assert all(mode not in pool.usd_per_node_h for pool in builtin().pools().values()), "no price ships"
    (tmp_path / "commitments.csv").write_text(PRICE.format(mode=mode), encoding="utf-8")
    (buy,) = plan(case_from_text(CASE.format(mode=mode)), load(tmp_path), compare=False).purchases
    year_usd = 30.0 * 24.0 * 365.0 * 4
    assert buy.usd == pytest.approx(year_usd), "the whole term is paid, used or not"
    assert buy.used_node_h < 0.9 * buy.bought_node_h
    at_once = sum(usd for start_s, end_s, usd in payments(buy) if start_s == end_s == 0.0)
    assert at_once == pytest.approx(frac * year_usd) == pytest.approx(buy.upfront_usd)
