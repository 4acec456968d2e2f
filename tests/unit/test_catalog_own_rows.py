"""A user's rows go over the shipped ones, mistakes in them are named, and the commands show all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainplan.cli.catalog import app
from trainplan_models import catalog
from trainplan_models.base import InputError
from trainplan_models.catalog import reading
from trainplan_models.catalog.records import Accelerator
from trainplan_models.catalog.tables import TABLES

KNOWN = catalog.builtin()

OFFERS = "cloud,region,instance_type,mode,usd_per_node_h,source,as_of\n"


def own(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def test_own_rows_replace_and_add(tmp_path: Path) -> None:
    offers = "aws,us-east-1,p5.48xlarge,on-demand,41.5,contract,2026-09\naws,mars-1,p5.48xlarge,on-demand,99,x,2026\n"
    transfers = (
        "cloud,region,to,from_gb,to_gb,usd_per_gb,source,as_of\naws,*,internet,0,,0.03,contract,2026-09\n"
    )
    own(tmp_path, offers=OFFERS + offers, transfers=transfers)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    known = catalog.load(tmp_path)
    pools = known.pools()
    assert pools["aws/us-east-1/p5.48xlarge"].usd_per_node_h["on-demand"] == 41.5
    assert pools["aws/us-east-1/p5.48xlarge"].price_as_of["on-demand"] == "2026-09"
    assert pools["aws/mars-1/p5.48xlarge"].usd_per_node_h["on-demand"] == 99.0
    assert len(known.offers) == len(KNOWN.offers) + 1
    internet = known.transfers_for("aws", "us-west-2", "internet")
    assert [(row.from_gb, row.usd_per_gb) for row in internet] == [(0.0, 0.03)], (
        "brackets are replaced together"
    )
    assert catalog.builtin().pools()["aws/us-east-1/p5.48xlarge"].usd_per_node_h["on-demand"] == 55.04
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_own_machine_may_name_its_chip_by_alias(tmp_path: Path) -> None:
    head = "cloud,instance_type,accelerator,accelerators,nic_bytes_per_s,scaleup_devices,source,as_of\n"
    own(
        tmp_path,
        nodes=head + "lambda,pod,h100,8,5e10,8,contract,2026-09\n",
        offers=OFFERS + "lambda,x,pod,spot,9,c,2026\n",
    )
    pool = catalog.load(tmp_path).pools()["lambda/x/pod"]
    assert (pool.accelerator.name, pool.usd_per_node_h) == ("H100-SXM", {"spot": 9.0})


P5 = "aws,us-east-1,p5.48xlarge,"
MISTAKES: dict[str, tuple[dict[str, str], list[str]]] = {
    "a column misspelt": (
        {"offers": OFFERS.replace("usd_per_node_h", "usd_per_node_hour")},
        [
            ":1: usd_per_node_hour: no such column. Did you mean usd_per_node_h?",
            ":1: usd_per_node_h: this column is missing",
        ],
    ),
    "no number": (
        {"offers": OFFERS + P5 + "spot,cheap,x,2026\n"},
        [":2: usd_per_node_h: input should be a valid number", "got 'cheap'"],
    ),
    "a price of nothing": (
        {"offers": OFFERS + P5 + "spot,0,x,2026\n"},
        [":2: usd_per_node_h: input should be greater than 0, got '0'"],
    ),
    "an empty cell": (
        {"offers": OFFERS + "aws,us-east-1,,spot,1,x,2026\n"},
        [":2: instance_type: this cell is empty"],
    ),
    "a short row": ({"offers": OFFERS + P5 + "spot,1\n"}, [":2: 5 cells where the header has 7 columns"]),
    "an unknown machine": (
        {"offers": OFFERS + "aws,us-east-1,p5.48large,spot,1,x,2026\n"},
        [":2: instance_type: no machine 'p5.48large' in aws. Did you mean p5.48xlarge?"],
    ),
    "an unknown mode": (
        {"offers": OFFERS + P5 + "sport,1,x,2026\n"},
        [":2: mode: unknown billing mode 'sport'"],
    ),
    "a row given twice": (
        {"offers": OFFERS + 2 * (P5 + "spot,1,x,2026\n")},
        [
            ":3: cloud=aws region=us-east-1 instance_type=p5.48xlarge mode=spot is there twice, first in line 2"
        ],
    ),
    "a file misspelt": (
        {"offer": OFFERS},
        ["offer.csv: no table of the catalogue", "Did you mean offers.csv?"],
    ),
    "neither price nor discount": (
        {"commitments": "mode,cloud,instance_type,source,as_of\nreserved-1y,aws,p5.48xlarge,x,2026\n"},
        [":2: usd_per_node_h: a price or a discount is needed, and not both"],
    ),
    "mistakes in two files": (
        {
            "offers": OFFERS + P5 + "spot,-1,x,2026\n",
            "defaults": "key,value,unit,source,as_of\npue,x,ratio,s,2026\n",
        },
        ["offers.csv:2: usd_per_node_h", "defaults.csv:2: value: input should be a valid number"],
    ),
}


@pytest.mark.parametrize(("files", "messages"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named_by_file_line_and_column(
    tmp_path: Path, files: dict[str, str], messages: list[str]
) -> None:
    with pytest.raises(InputError) as error:
        catalog.load(own(tmp_path, **files))
    for message in messages:
        assert message in str(error.value)


def test_a_directory_that_is_not_there_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        catalog.load(tmp_path / "nowhere")
    (tmp_path / "offers.csv").write_bytes(b"cloud,region\n\xff\xfe,x\n")
    with pytest.raises(InputError, match="cannot be read as CSV in UTF-8"):
        catalog.load(tmp_path)


def test_two_chips_cannot_share_an_alias(tmp_path: Path) -> None:
    sheet = reading.write_records(
        Accelerator, [KNOWN.accelerator("L4").model_copy(update={"aliases": ("B200",)})]
    )
    with pytest.raises(InputError, match="both claim the accelerator name"):
        catalog.load(own(tmp_path, accelerators=sheet))


# The commands


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_show_lists_tables_rows_and_one_row_with_its_source() -> None:
    assert all(kind in run("show") for kind in TABLES)
    listed = run("show", "offers", "--json")
    assert len(json.loads(listed)) == len(KNOWN.offers)
    text = run("show", "offers")
    assert max(map(len, text.splitlines())) > 80 and "…" not in text, "nothing is cut away from a terminal"
    assert len(text.splitlines()) == len(KNOWN.offers) + 1
    one = run("show", "accelerators", "h100-80gb")
    assert "9.89e+14" in one or "989000000000000" in one
    assert "stas00/ml-engineering" in one and "2026-08" in one
    pool = json.loads(run("show", "offers", "aws/us-east-1/p5.48xlarge", "--json"))
    assert {row["mode"] for row in pool} == {"on-demand", "spot"}


def test_check_prints_what_was_dropped_and_why_and_what_is_old() -> None:
    text = run("check")
    assert text.count("defined-duration ") == 54 and "host-price" in text and "placeholder" in text
    assert "capacity-block prices of aws: at least" in text
    found = json.loads(run("check", "--json"))
    assert len(found["dropped_offers"]) == len(KNOWN.dropped)
    assert {f["severity"] for f in found["findings"]} == {"warning", "note"}


def test_check_fails_on_rows_that_cannot_be_used(tmp_path: Path) -> None:
    text = "cloud,region,to,from_gb,to_gb,usd_per_gb,source,as_of\naws,*,internet,10,,0.03,contract,2026-09\n"
    result = CliRunner().invoke(app, ["check", "--catalog", str(own(tmp_path, transfers=text))])
    assert result.exit_code == 2
    assert "error: transfers: aws/* to internet: volume brackets have a gap" in result.output


def test_import_writes_a_catalogue_that_loads_and_never_over_another(tmp_path: Path) -> None:
    prices = tmp_path / "vms.csv"
    prices.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region\n"
        "p5.48xlarge,H100,8,50,20,us-east-1\nnew.8x,B200,8,60,60,us-east-1\n",
        encoding="utf-8",
    )
    words = ["import", str(prices), "--cloud", "aws", "--as-of", "2026-09-01", "-o", str(tmp_path / "own")]
    assert "3 offers, 1 prices left out" in run(*words)
    pools = catalog.load(tmp_path / "own").pools()
    assert pools["aws/us-east-1/p5.48xlarge"].usd_per_node_h["on-demand"] == 50.0
    assert pools["aws/us-east-1/new.8x"].node.nic_bytes_per_s == 0.0
    assert "new.8x" in run("show", "dropped_offers", "--catalog", str(tmp_path / "own"))
    again = CliRunner().invoke(app, words)
    assert isinstance(again.exception, InputError) and "already" in str(again.exception)
