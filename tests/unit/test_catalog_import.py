"""``trainplan catalog import`` from the shell's side: what each kind of file becomes, and what is refused and why."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from trainplan.cli.catalog import app as catalog_app
from trainplan.cli.group import Commands
from trainplan_models import catalog
from trainplan_models.casefile import load_case

app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(catalog_app)

P5 = "aws/us-east-1/p5.48xlarge"
LIST = (
    "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
    "p5.48xlarge,H100,8,50,20,us-east-1\np5.48xlarge,H100,8,51,21,us-east-2\n"
    "p4d.24xlarge,A100,8,0,,us-east-1\nthing.xlarge,Zz9,8,40,,us-east-1\nm5.large,,,0.1,,us-east-1\n"
)
CONTRACT = "cloud,region,instance_type,mode,usd_per_node_h,as_of\n"
CASE = """\
# ours
name: ours
start: 2027-01-01
deadline: 60 days            # the board's
tasks:
  - {name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 20B tokens, sequence_length: 4096,
     global_batch: 4194304 tokens}
resources:
  accelerators: [H100-SXM]
  quotas:
    - {pool: aws/us-east-2/p5.48xlarge, on-demand: 2 nodes}     # asked for more
"""


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["catalog", *(str(word) for word in words)])
    return done.exit_code, done.stderr


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def price_list(folder: Path) -> list[object]:
    return ["import", file(folder, "vms.csv", LIST), "--cloud", "aws", "--as-of", "2026-09-01"]


def test_a_price_list_says_how_many_prices_each_rule_left_out(tmp_path: Path) -> None:
    code, said = run(*price_list(tmp_path), "-o", tmp_path / "own")
    assert code == 0, said
    assert "4 offers, 2 prices left out, 1 rows without an accelerator" in said
    assert "  unknown-accelerator: 1 ('Zz9' is not in the catalogue)" in said
    assert "  zero-price: 1 (nothing is rented for nothing" in said
    own = catalog.load(tmp_path / "own")
    (offer,) = [o for o in own.offers if o.pool == P5 and o.mode == "on-demand"]
    assert (offer.usd_per_node_h, offer.source, offer.as_of) == (50.0, "vms.csv", "2026-09-01")


def test_private_prices_become_a_catalogue_with_their_source_and_date(tmp_path: Path) -> None:
    rows = "aws,us-east-1,p5.48xlarge,on-demand,30.5,2026-11-01\naws,us-east-1,p5.48xlarge,reserved-1y,25,\n"
    contract = file(tmp_path, "contract.csv", CONTRACT + rows)
    words = ("import", contract, "--as-of", "2026-11-30", "--source", "contract 7", "-o", tmp_path / "own")
    code, said = run(*words)
    assert code == 0, said
    assert "1 offers, 1 commitments" in said
    pools, listed = catalog.load(tmp_path / "own").pools(), catalog.builtin().pools()
    assert pools[P5].usd_per_node_h["on-demand"] == 30.5
    assert pools[P5].usd_per_node_h["reserved-1y"] == 25.0
    assert (pools[P5].price_as_of["on-demand"], pools[P5].price_as_of["reserved-1y"]) == (
        "2026-11-01",
        "2026-11-30",
    )
    other = "aws/us-east-2/p5.48xlarge"
    assert pools[other].usd_per_node_h == listed[other].usd_per_node_h, "one region's price moves no other's"
    offers = (tmp_path / "own" / "offers.csv").read_text(encoding="utf-8")
    assert "contract 7" in offers


def test_private_prices_go_over_a_price_list_and_a_price_list_never_over_one_s_own_rows(
    tmp_path: Path,
) -> None:
    listed, private, newer = (tmp_path / name for name in ("listed", "private", "newer"))
    assert run(*price_list(tmp_path), "-o", listed)[0] == 0
    before = {path.name: path.read_bytes() for path in listed.iterdir()}
    contract = file(
        tmp_path, "contract.csv", CONTRACT + "aws,us-east-1,p5.48xlarge,on-demand,30.5,2026-11-01\n"
    )
    code, said = run("import", contract, "--catalog", listed, "-o", private)
    assert code == 0, said
    assert f"1 rows of {listed} give way to private prices" in said
    usd = catalog.load(private).pools()
    assert usd[P5].usd_per_node_h["on-demand"] == 30.5
    assert usd[P5].usd_per_node_h["spot"] == 20.0, "the list's other prices are taken along"
    assert usd["aws/us-east-2/p5.48xlarge"].usd_per_node_h["on-demand"] == 51.0
    assert {path.name: path.read_bytes() for path in listed.iterdir()} == before, "read, never changed"
    code, said = run(*price_list(tmp_path), "--catalog", private, "-o", newer)
    assert code == 0, said
    assert f"1 rows of {private} stay, and the list has others for them" in said
    assert catalog.load(newer).pools()[P5].usd_per_node_h["on-demand"] == 30.5


def test_quotas_reservations_and_a_cluster_go_into_a_new_case(tmp_path: Path) -> None:
    case = file(tmp_path, "case.yaml", CASE)
    quotas = (
        f"pool,on_demand,spot\n{P5},768 vCPUs,16\naws/us-east-2/p5.48xlarge,9,9\naws/mars-1/p5.48xlarge,1,\n"
    )
    reserved = f"name,pool,nodes,start,end\nblock,{P5},4,2027-01-05,2027-01-25\nover,{P5},4,,2026-05-01\n"
    sinfo = "n[1-4]|p|idle|96|1|gpu:h100:8|-|-\nlogin|p|idle|8|1|(null)|-|-\n"
    steps: list[tuple[str, str, list[object], list[str]]] = [
        (
            "q.csv",
            quotas,
            [],
            ["2 quotas, of which 1 stay as the case has them", "aws/mars-1", "left out: 1"],
        ),
        ("r.csv", reserved, [], ["1 reservations", "over ended on 2026-05-01, before day 0"]),
        ("dc1.txt", sinfo, ["--accelerator", "h100=H100-SXM"], ["4 nodes of 8", "1 nodes without accel"]),
    ]
    for number, (name, text, words, says) in enumerate(steps):
        new = tmp_path / f"case{number}.yaml"
        code, said = run(
            "import", file(tmp_path, name, text), "--case", case, "--as-of", "2026-11-30", "-o", new, *words
        )
        assert code == 0, said
        assert [words for words in says if words not in said] == []
        case = new
    found = load_case(case).resources
    limits = {quota.pool: (quota.on_demand, quota.spot) for quota in found.quotas}
    assert limits == {"aws/us-east-2/p5.48xlarge": (2, None), P5: (4, 16)}
    assert [(one.name, one.nodes) for one in found.owned] == [("block", 4), ("dc1", 4)]
    assert [one.nodes for one in found.owned[0].free] == [4, 0]
    text = case.read_text(encoding="utf-8")
    for comment in (
        "# ours",
        "# the board's",
        "# asked for more",
        "# from q.csv, 2026-11-30",
        "# from dc1.txt",
    ):
        assert comment in text
    assert (tmp_path / "case.yaml").read_text(encoding="utf-8") == CASE


def test_a_case_with_an_import_says_all_that_it_said_before(tmp_path: Path) -> None:
    for path in sorted((Path(__file__).parents[2] / "cases").glob("*.yaml")):
        sinfo = file(tmp_path, "lab.txt", "n[1-4]|p|idle|96|1|gpu:h100:8|-|-\n")
        new = tmp_path / path.name
        words = ("--case", path, "--as-of", "2026-11", "--accelerator", "h100=H100-SXM", "-o", new)
        code, said = run("import", sinfo, *words)
        assert code == 0, said
        before, after = load_case(path).canonical(), load_case(new).canonical()
        assert [one["name"] for one in after["resources"]["owned"]][-1] == "lab"
        after["resources"]["owned"] = after["resources"]["owned"][:-1]
        assert after == before, path.name


def test_a_case_without_a_day_0_takes_it_with_its_reservations(tmp_path: Path) -> None:
    case = file(tmp_path, "case.yaml", CASE.replace("start: 2027-01-01\n", ""))
    reserved = file(tmp_path, "r.csv", f"name,pool,nodes,start,end\nblock,{P5},4,2027-01-05,2027-01-25\n")
    words = ("import", reserved, "--case", case, "--as-of", "2026-11-30", "-o", tmp_path / "new.yaml")
    code, said = run(*words)
    assert code == 2 and "does not say on which day it starts" in said and "--start" in said
    assert run(*words, "--start", "2027-01-02")[0] == 0
    assert str(load_case(tmp_path / "new.yaml").start).startswith("2027-01-02")


Q = f"pool,spot\n{P5},8\n"


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (Q, [], ["belong to a case", "--case", "trainplan init"]),
        (Q, ["--case", "case.yaml"], ["of when these are", "--as-of"]),
        (Q, ["--case", "case.yaml", "--as-of", "soon"], ["'soon' is no date", "2026-08-31"]),
        (Q, ["--case", "none.yaml", "--as-of", "2026-11"], ["no such file"]),
        (Q, ["--kind", "quota", "--as-of", "2026-11"], ["Did you mean quotas"]),
        (Q, ["--case", "case.yaml", "--as-of", "2026-11", "--start", "x"], ["'x' is no date"]),
        (Q, ["--case", "case.yaml", "--as-of", "2026-11", "--start", "2027-02-01"], ["starts on 2027-01-01"]),
        (
            "pool,spott\na,1\n",
            ["--kind", "quotas", "--case", "case.yaml"],
            ["f.csv:1: spott", "Did you mean spot"],
        ),
        (CONTRACT + "aws,us-east-1,p5.48xlarge,spott,3,\n", [], ["f.csv:2: mode", "f.csv:2: as_of: no date"]),
        (CONTRACT, ["--case", "case.yaml", "--as-of", "2026-11"], ["prices belong to a catalogue"]),
        (LIST, [], ["--as-of 2026-08-31"]),
        ("what,is,this\n1,2,3\n", [], ["no kind of import", "quotas (quotas: pool", "sinfo (the nodes"]),
        ("", [], ["is empty"]),
    ],
)
def test_what_cannot_be_imported_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: list[str], says: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "case.yaml", CASE)
    file(tmp_path, "f.csv", text)
    code, said = run("import", "f.csv", "-o", "new", *words)
    assert code == 2
    assert [word for word in says if word not in said] == [], said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case.yaml", "f.csv"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    case = file(tmp_path, "case.yaml", CASE)
    words = ("import", file(tmp_path, "q.csv", Q), "--case", case, "--as-of", "2026-11-30", "-o", case)
    code, said = run(*words)
    assert code == 2 and "yours is never changed" in said
    assert case.read_text(encoding="utf-8") == CASE


def test_a_full_size_price_list_is_read_in_seconds(tmp_path: Path) -> None:
    """100,000 rows, as the lists of the largest clouds have; here with two prices each, which they seldom have.

    Of the processor's time, as other tests run beside this one.
    """
    rows = io.StringIO()
    rows.write("InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region,AvailabilityZone\n")
    for number in range(100_000):
        region, zone, kind = number % 40, number // 40 % 50, number // 2000
        machine = f"kind{kind},H100,8" if kind else "p5.48xlarge,H100,8"
        price = 0 if number % 97 == 0 else 40 + region * 0.1
        rows.write(f"{machine},{price},{price / 2},region-{region},zone-{zone}\n")
    full = file(tmp_path, "vms.csv", rows.getvalue())
    started_s = time.process_time()
    code, said = run("import", full, "--cloud", "aws", "--as-of", "2026-11-30", "-o", tmp_path / "own")
    taken_s = time.process_time() - started_s
    assert code == 0, said
    assert taken_s < 5.0
    assert "4000 offers, 2062 prices left out" in said
    assert "  zero-price: 2062 (nothing is rented for nothing" in said
    assert len((tmp_path / "own" / "offers.csv").read_text(encoding="utf-8").splitlines()) == 4001
