"""Plans made after an import use what was imported."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from trainplan.cli.catalog import app
from trainplan.planning import plan
from trainplan_models.casefile import load_case
from trainplan_models.catalog import builtin, load

P5 = "aws/us-east-1/p5.48xlarge"
CASE = """\
name: ours
start: 2027-01-01
deadline: 30 days
reliability: 50%
tasks:
  - {name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 20B tokens, sequence_length: 4096,
     global_batch: 4194304 tokens}
resources: {accelerators: [H100-SXM], clouds: [aws], billing: [on-demand], node_counts: [2, 4]}
"""


def imported(folder: Path, table: str, output: str, *words: str) -> Path:
    """What an import of ``table`` writes."""
    source, case = folder / "table.csv", folder / "case.yaml"
    source.write_text(table, encoding="utf-8")
    case.write_text(CASE, encoding="utf-8")
    given = ["import", str(source), "--as-of", "2026-11-30", "-o", str(folder / output), *words]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return folder / output


def test_a_plan_uses_the_imported_price(tmp_path: Path) -> None:
    """The region is not the cheapest of the list, so only the private price can lead there."""
    region = "aws/ap-northeast-1/p5.48xlarge"
    table = "cloud,region,instance_type,mode,usd_per_node_h\naws,ap-northeast-1,p5.48xlarge,on-demand,20.5\n"
    own = load(imported(tmp_path, table, "own"))
    case = load_case(tmp_path / "case.yaml")
    before, after = plan(case, builtin(), compare=False), plan(case, own, compare=False)
    assert {segment.pool for segment in before.segments} != {region}
    assert {(s.pool, s.usd_per_node_h) for s in after.segments} == {(region, 20.5)}
    assert after.total_usd < before.total_usd
    assert after.price_dates == ("2026-11-30",)


def test_a_plan_keeps_to_an_imported_quota(tmp_path: Path) -> None:
    regions = {pool.region for pool in builtin().pools().values() if pool.node.instance_type == "p5.48xlarge"}
    rows = [f"aws/{region}/p5.48xlarge,384 vCPUs" for region in sorted(regions)]
    table = "\n".join(["pool,on_demand", *rows, ""])
    limited = imported(tmp_path, table, "limited.yaml", "--case", str(tmp_path / "case.yaml"))
    free, held = load_case(tmp_path / "case.yaml"), load_case(limited)
    fastest = {"question": "fastest"}
    before = plan(free.model_copy(update=fastest), builtin(), compare=False)
    after = plan(held.model_copy(update=fastest), builtin(), compare=False)
    assert max(segment.nodes for segment in before.segments) == 4
    assert {segment.nodes for segment in after.segments if "p5.48xlarge" in segment.pool} == {2}


def test_a_plan_runs_on_an_imported_reservation_and_cluster(tmp_path: Path) -> None:
    table = f"name,pool,nodes,start,end\nblock,{P5},2,2027-01-03,2027-01-20\n"
    case = imported(tmp_path, table, "reserved.yaml", "--case", str(tmp_path / "case.yaml"))
    reserved = plan(load_case(case), builtin(), compare=False)
    assert {segment.pool for segment in reserved.segments} == {"block"}
    assert min(segment.start_s for segment in reserved.segments) >= 2 * 86400.0
    (tmp_path / "again").mkdir()
    names = ("--accelerator", "h100=H100-SXM", "--kind", "sinfo")
    table = "n[1-2]|train|idle|96|1|gpu:h100:8|-|-\n"
    words = ("--case", str(tmp_path / "again" / "case.yaml"), *names)
    owned = plan(
        load_case(imported(tmp_path / "again", table, "owned.yaml", *words)), builtin(), compare=False
    )
    assert {(segment.pool, segment.mode) for segment in owned.segments} == {("table", "owned")}
