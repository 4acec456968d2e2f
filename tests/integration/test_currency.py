"""The same case in another currency gets the same decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainplan.planning import plan
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import Catalog, builtin
from trainplan_models.plan import Plan

CASE = """
name: currency
deadline: 4 days
budget: {budget} USD
tasks:
  - {{name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 200B tokens, sequence_length: 8192,
      global_batch: 4M tokens, dataset: {{size: 800 GB, at: aws/us-east-1}}}}
resources: {{accelerators: [H100-SXM, A100-SXM-80GB], clouds: [aws, nebius], max_nodes: 32,
  billing: [on-demand, spot, capacity-block]}}
checkpoints: {{keep_every: 1 day}}
people: {{engineers: 1, rate: {rate} USD/hour}}
overheads: {{experiments: 10%}}
"""


def in_currency(catalog: Catalog, factor: float) -> Catalog:
    """The catalogue with every price multiplied."""

    def times(name: str, row: object) -> dict[str, float]:
        value = getattr(row, name)
        return {} if value is None else {name: value * factor}

    return replace(
        catalog,
        offers=tuple(row.model_copy(update=times("usd_per_node_h", row)) for row in catalog.offers),
        commitments=tuple(row.model_copy(update=times("usd_per_node_h", row)) for row in catalog.commitments),
        tiers=tuple(
            row.model_copy(
                update={
                    key: value
                    for name in (
                        "usd_per_gb_month",
                        "retrieval_usd_per_gb",
                        "write_usd_per_10k",
                        "read_usd_per_10k",
                    )
                    for key, value in times(name, row).items()
                }
            )
            for row in catalog.tiers
        ),
        transfers=tuple(row.model_copy(update=times("usd_per_gb", row)) for row in catalog.transfers),
        defaults={
            key: row.model_copy(update={"value": row.value * factor}) if "usd" in key else row
            for key, row in catalog.defaults.items()
        },
    )


def decided(factor: float) -> Plan:
    case = case_from_text(CASE.format(budget=f"{60_000 * factor:.9f}", rate=f"{120 * factor:.9f}"))
    return plan(case, in_currency(builtin(), factor), compare=False, promise=False)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_price_in_another_currency_changes_no_decision(factor: float) -> None:
    here, there = decided(1.0), decided(factor)
    assert [(s.pool, s.mode, s.nodes, s.spare_nodes, s.layout) for s in there.segments] == [
        (s.pool, s.mode, s.nodes, s.spare_nodes, s.layout) for s in here.segments
    ]
    assert [s.work_frac for s in there.segments] == pytest.approx(
        [s.work_frac for s in here.segments], abs=1e-6
    )
    assert [(p.pool, p.mode, p.nodes, p.count) for p in there.purchases] == [
        (p.pool, p.mode, p.nodes, p.count) for p in here.purchases
    ]
    assert there.solver.objective_usd == pytest.approx(here.solver.objective_usd * factor, rel=1e-6)
