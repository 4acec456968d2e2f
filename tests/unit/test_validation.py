from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from trainplan_models import catalog
from trainplan_models.base import InputError
from trainplan_models.calibration import calibrate
from trainplan_models.efficiency import bounds, hardware_rows, software_rows
from trainplan_models.estimating import Machine, estimate_layout, nearest_fit, ranked
from trainplan_models.measurements import Reading, port_bytes_per_s, read, read_rows
from trainplan_models.plan import Layout
from trainplan_models.residuals import measure, residuals_of, widened
from trainplan_models.scatter import scatter_svg
from trainplan_models.validation import shipped, validate
from trainplan_models.workload import TrainSetup, shape_of

KNOWN = catalog.builtin()
ROW = {
    "row_id": "mine-1",
    "model_name": "Llama-3-8B",
    "params_b": "8.03",
    "seq_len": "8192",
    "accelerator": "H100-80GB-SXM",
    "num_accelerators": "64",
    "precision": "bf16",
    "global_batch_seqs": "512",
    "micro_batch": "1",
    "tp": "1",
    "pp": "1",
    "cp": "2",
    "framework": "NeMo 24.12",
    "tokens_per_s_per_accel": "10000",
    "task": "pretrain",
}
SWEEP = Path(__file__).resolve().parents[3] / "shared" / "data" / "layout_sweep_memory.csv"


def machine(nodes: int = 1) -> Machine:
    accelerator = KNOWN.accelerator("H100-SXM")
    node = next(n for n in KNOWN.nodes.values() if n.accelerator == accelerator.name and n.accelerators == 8)
    return Machine(accelerator, node, nodes)


def test_parameters_stay_within_their_bounds() -> None:
    checked = set()
    for owner, row in [*hardware_rows().items(), *software_rows().items()]:
        for name, (low, high) in bounds().items():
            if hasattr(row, name):
                value = getattr(row, name)
                assert low <= value <= high or value == 0.0, f"{owner}.{name}"
                checked.add(name)
    assert checked == set(bounds())


BENCHMARK = {**ROW, "precision": "", "tp": "", "pp": "", "cp": "", "framework": "PyTorch"}


@pytest.mark.parametrize(
    ("source", "chip", "precision", "software"),
    [
        ("mlperf-v3.0", "Habana Gaudi2", "bf16", "megatron-2023"),
        ("mlperf-v3.1", "Intel Gaudi2", "fp8", "megatron-2023"),
        ("mlperf-v3.1", "NVIDIA H100-SXM5-80GB", "fp8", "megatron-te-2023"),
        ("mlperf-v4.1", "NVIDIA H100-SXM5-80GB", "fp8", "megatron-2024"),
        ("mlperf-v5.0", "NVIDIA GB200", "fp8", "megatron-2025-04"),
        ("mlperf-v5.1", "NVIDIA GB300", "fp4", "megatron-2025"),
        ("mlperf-v5.1", "NVIDIA H200-SXM5-141GB", "fp8", "megatron-2025"),
        ("mlperf-v5.0", "AMD Instinct MI325X", "fp8", "megatron-2024"),
        ("mlperf-v4.0", "NVIDIA A100-SXM4-80GB", "bf16", "megatron-2024"),
        ("mlperf-v4.1", "TPU-v5p", "bf16", "maxtext-2025"),
        ("yours", "NVIDIA H100-SXM5-80GB", "bf16", ""),
    ],
)
def test_rounds_of_a_benchmark_are_told_apart(source: str, chip: str, precision: str, software: str) -> None:
    framework = "" if software else "NeMo 24.07"
    row = {**BENCHMARK, "source_group": source, "accelerator": chip} | (
        {"framework": framework} if framework else {}
    )
    reading = read(row, KNOWN)
    assert isinstance(reading, Reading)
    assert reading.labels["precision"] == precision
    assert reading.labels["software"] == (software or "megatron-2024")


def test_rows_with_other_heads_are_no_layout_sweep() -> None:
    """Two numbers of heads are two models, though nothing else differs."""
    other = {**ROW, "row_id": "mine-2", "heads": "64", "kv_heads": "8", "layers": "32", "hidden": "4096"}
    same = {**other, "row_id": "mine-3", "heads": "32"}
    first, second, third = validate([same, other, {**same, "tp": "2"}], [], [], KNOWN).rows
    assert first.sweep == third.sweep != second.sweep


def test_every_generation_of_the_catalogue_has_parameters() -> None:
    assert {chip.generation for chip in KNOWN.accelerators.values()} <= set(hardware_rows())


def test_shipped_dense_rows_are_predicted_within_the_bar() -> None:
    rows = [row for row in shipped("throughput") if row["source_group"] in ("llm-foundry", "dgxc-bench")]
    result = validate(rows, [], [], KNOWN)
    ratios = np.array(
        [
            row.ratio
            for row in result.rows
            if row.ratio and row.labels["model"] == "dense" and row.labels["task"] == "pretrain"
        ]
    )
    assert len(ratios) > 200
    assert np.median(np.abs(ratios - 1)) < 0.08
    assert np.quantile(np.abs(ratios - 1), 0.9) < 0.2


def test_shipped_memory_rows_are_predicted_within_the_bar() -> None:
    summary = validate([], shipped("memory"), [], KNOWN).to_json()["summary"]
    assert summary["peak_memory"]["median"] < 0.1
    assert summary["fit"]["right"] > 0.9


def test_no_row_is_dropped_and_json_has_the_promised_keys() -> None:
    rows = [ROW, {"row_id": "x"}, {**ROW, "row_id": "y", "accelerator": "Abacus"}]
    result = validate(
        rows, [{**ROW, "outcome": "fit", "peak_gib": "70"}], [{"run_id": "r", "kind": "sft"}], KNOWN
    ).to_json()
    assert [row["row_id"] for row in result["rows"]] == ["mine-1", "x", "y"]
    assert result["rows"][0]["predicted"] == pytest.approx(10000, rel=0.3)
    assert all(row["predicted"] is None and row["reason"] for row in result["rows"][1:])
    assert set(result["memory_rows"][0]) == {"row_id", "predicted_peak_gib", "fits", "reason"}
    assert set(result["run_rows"][0]) == {"run_id", "predicted", "measured", "unit", "p10", "p90", "reason"}
    json.dumps(result, allow_nan=False)


def test_no_row_of_the_layout_study_ships() -> None:
    for name in ("throughput", "memory"):
        rows = shipped(name)
        assert rows and all(row["source_group"] != "aleph-alpha" for row in rows)
        assert not any("NC" in row["licence"] or "CC-BY-SA" in row["licence"] for row in rows)
        assert all(row["source"] and row["licence"] for row in rows)


@pytest.mark.shared
@pytest.mark.skipif(not SWEEP.exists(), reason="the shared data is not beside the checkout")
def test_layout_study_fits_where_it_fitted() -> None:
    fit = validate([], read_rows(SWEEP), [], KNOWN).to_json()["summary"]["fit"]
    assert fit["right"] > 0.93
    assert fit["fit_said_oom"] <= 0.05 * (fit["fit_said_fit"] + fit["fit_said_oom"])


@pytest.mark.parametrize(
    ("text", "gigabit"),
    [
        ("1600 Gbps/node RoCE", 200),
        ("NVLink + 4x Omni-Path 100Gb per node (Jean Zay)", 50),
        ("Selene: NVLink3 + 8x HDR IB", 200),
        ("NVLink + NDR IB 400G/GPU (reference arch.)", 400),
        ("NVLINK 4.0 | 1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 400),
        ("NVLink (1 node)", None),
    ],
)
def test_interconnects_are_understood(text: str, gigabit: float | None) -> None:
    assert port_bytes_per_s(text, 8) == (None if gigabit is None else pytest.approx(gigabit * 1e9 / 8))


def test_other_tables_are_read_by_their_own_columns() -> None:
    row = {
        "row_id": "v", "Parameters (billion)": "3.6", "# GPUs": "64", "global batch": "512", "micro batch": "8",
        "hidden size": "3072", "attention heads": "32", "# layers": "30", "sequence length": "2048",
        "tensor parallelism": "1", "data parallelism": "64", "pipeline parallelism": "1",
        "iteration time (ms)": "3566.5",
    }  # fmt: skip
    reading = read(row, KNOWN)
    assert isinstance(reading, Reading)
    assert reading.measured == pytest.approx(512 * 2048 / 3.5665 / 64)


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")
    empty = tmp_path / "empty.csv"
    empty.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="is empty"):
        read_rows(empty)


def test_scatter_is_well_formed() -> None:
    from xml.etree import ElementTree

    result = validate([ROW], [], [], KNOWN)
    tree = ElementTree.fromstring(scatter_svg(result.rows))
    assert tree.tag.endswith("svg") and "mine-1" in ElementTree.tostring(tree, encoding="unicode")


def test_residuals_fall_back_to_wider_classes() -> None:
    labels = {"generation": "hopper", "precision": "bf16", "model": "dense", "size": "2-20B", "source": ""}
    assert residuals_of(labels).measured
    unknown = residuals_of({**labels, "generation": "abacus"})
    assert not unknown.measured
    assert unknown.p90 / unknown.p10 > residuals_of(labels).p90 / residuals_of(labels).p10
    wide = widened(unknown, 2.0)
    assert wide.p10 < unknown.p10 < unknown.p50 == wide.p50 < unknown.p90 < wide.p90


def test_residuals_are_quantiles_of_the_ratios() -> None:
    labels = {"generation": "g", "precision": "bf16", "model": "dense", "size": "<2B"}
    pairs = [
        ({**labels, "source": source}, ratio) for source in "rst" for ratio in np.linspace(0.5, 1.5, 101)
    ]
    found = measure(pairs)["g/bf16/dense"]
    assert (found.p10, found.p50, found.p90) == pytest.approx((0.6, 1.0, 1.4), abs=0.01)
    alone = [pair for pair in pairs if pair[0]["source"] == "t"]
    assert "g/bf16/dense" not in measure(alone), "one source does not say how far another may be off"


def test_a_large_source_does_not_set_the_spread_alone() -> None:
    labels = {"generation": "g", "precision": "bf16", "model": "dense", "size": "<2B"}
    large = [({**labels, "source": "large"}, 1.0)] * 300
    small = [
        ({**labels, "source": name}, ratio) for name, ratio in (("a", 0.7), ("b", 1.3)) for _ in range(5)
    ]
    found = measure(large + small)["g/bf16/dense"]
    assert found.p10 < 0.8 and found.p90 > 1.2


def test_calibration_moves_towards_the_users_rows() -> None:
    slow = [{**ROW, "row_id": f"mine-{i}", "tokens_per_s_per_accel": "6000"} for i in range(8)]
    one, many = calibrate(slow[:1], KNOWN), calibrate(slow, KNOWN)
    predicted = validate([ROW], [], [], KNOWN).rows[0].predicted or 0.0
    assert many.factor("hopper") == pytest.approx(6000 / predicted, rel=0.05)
    assert many.factor("hopper") < one.factor("hopper") < 1.05
    factor = many.factors["hopper"]
    assert factor.median_error_after < factor.median_error_before
    assert many.factor("ampere") == 1.0
    with pytest.raises(InputError, match="no row can be used"):
        calibrate([{"row_id": "bad"}], KNOWN)


def test_estimate_splits_time_and_memory_and_says_what_fits() -> None:
    task = TrainSetup(shape_of(KNOWN.model("llama-3-8b")), 8192, 512)
    found = estimate_layout(task, Layout(dp=8, micro_batch=8), machine())
    assert not found.fits
    assert sum(found.time_s.values()) == pytest.approx(found.step_s)
    assert found.tokens_per_s_p10 < found.tokens_per_s < found.tokens_per_s_p90
    for parts in found.memory_bytes.values():
        assert sum(value for name, value in parts.items() if name != "total_bytes") == pytest.approx(
            parts["total_bytes"]
        )
    change = nearest_fit(task, found.layout, machine())
    assert change is not None and change.nodes == 1 and 1 <= len(change.changed) <= 2


def test_ranked_layouts_are_sorted_and_fit() -> None:
    task = TrainSetup(shape_of(KNOWN.model("llama-3-8b")), 8192, 512)
    found, removed = ranked(task, machine(2), 8)
    rates = [item.tokens_per_s for item in found]
    assert len(found) == 8 and rates == sorted(rates, reverse=True)
    assert all(item.fits for item in found)
    assert removed["does not fit in memory"] > 0


def test_a_model_too_large_needs_more_nodes() -> None:
    task = TrainSetup(shape_of(KNOWN.model("llama-3.1-405b")), 8192, 512)
    change = nearest_fit(task, Layout(dp=1, tp=8), machine())
    assert change is not None and change.nodes > 1
    assert change.changed[0].startswith("nodes 1 ->")


def test_shipped_tables_have_the_documented_columns() -> None:
    from importlib.resources import files

    for name in ("throughput", "memory"):
        text = (
            files("trainplan_models.catalog").joinpath(f"measurements_{name}.csv").read_text(encoding="utf-8")
        )
        columns = set(csv.DictReader(text.splitlines()).fieldnames or ())
        assert {"row_id", "source", "licence", "accelerator", "tp", "pp", "micro_batch"} <= columns
