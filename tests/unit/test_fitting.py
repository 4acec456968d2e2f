from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from trainplan_models import catalog
from trainplan_models.efficiency import bounds, hardware_rows, matmul_flops, software_rows
from trainplan_models.fitting import Pool, Problem, fit, from_free, pools_from, shifts_of, start, to_free
from trainplan_models.fitting_rows import State
from trainplan_models.prediction import Candidates
from trainplan_models.validation import find, predict_with, shipped

KNOWN = catalog.builtin()
ALL: frozenset[str] = frozenset()


def rows(source: str, count: int) -> list[Candidates]:
    chosen = [row for row in shipped("throughput") if row["source_group"] == source][:count]
    found = [find(row, KNOWN) for row in chosen]
    return [item for item in found if isinstance(item, Candidates)]


def measured_under(truth: State, found: Sequence[Candidates]) -> list[Candidates]:
    """The rows as they would have been measured if ``truth`` were true."""
    return [
        replace(
            item,
            reading=replace(item.reading, measured=predict_with(item, truth).tokens_per_s_per_accelerator),
        )
        for item in found
    ]


def with_level(software: str, factor: float) -> State:
    state = start()
    changed = replace(state.software[software], compute_factor=factor)
    return State(state.hardware, {**state.software, software: changed})


def test_the_logistic_scale_is_undone() -> None:
    for name, (low, high) in bounds().items():
        for share in (0.1, 0.5, 0.9):
            value = low + share * (high - low)
            assert from_free(to_free(value, name), name) == pytest.approx(value), name


def test_a_family_moves_together_and_a_member_alone() -> None:
    centre = start()
    families = dict.fromkeys(centre.hardware, "gpu")
    shifts = shifts_of(centre, [Pool("hardware", "matmul_frac", ALL, 0.4, 0.4)], families)
    assert len(shifts) == 1 + len(centre.hardware)
    problem = Problem([], centre, shifts, np.zeros(0), np.ones(len(shifts)))
    shared = problem.state(np.eye(len(shifts))[0])
    alone = problem.state(np.eye(len(shifts))[1])
    for owner, row in centre.hardware.items():
        assert shared.hardware[owner].matmul_frac > row.matmul_frac
    moved = [o for o in centre.hardware if alone.hardware[o].matmul_frac != centre.hardware[o].matmul_frac]
    assert moved == [next(iter(shifts[1].owners))]


def test_what_a_chip_does_not_have_is_not_fitted() -> None:
    shifts = shifts_of(start(), [Pool("hardware", "fp8_frac", ALL, 0.4, 0.0)], {})
    owners = {owner for shift in shifts for owner in shift.owners}
    assert "hopper" in owners and "ampere" not in owners


def test_pools_can_be_limited_to_families() -> None:
    pool = Pool("hardware", "matmul_frac", frozenset({"tpu"}), 0.4, 0.4)
    families = {name: name.split("-")[0] for name in hardware_rows()}
    owners = {owner for shift in shifts_of(start(), [pool], families) for owner in shift.owners}
    assert owners and all(owner.startswith("tpu") for owner in owners)


def test_a_level_is_found_again_and_told_to_relatives() -> None:
    """A family of three learns most of what the rows of one say; another family nothing."""
    found = measured_under(with_level("fsdp-2023", 0.8), rows("llm-foundry", 40))
    families = {"fsdp-2023": "torch", "fsdp-2024": "torch", "hf-2024": "torch"}
    prior = with_level("fsdp-2023", software_rows()["fsdp-2024"].compute_factor)
    before = prior.software["fsdp-2024"].compute_factor
    pools = [Pool("software", "compute_factor", ALL, 0.5, 0.3)]
    fitted = fit(found, prior=prior, pools=pools, families=families, rounds=1)
    after = fitted.state.software
    assert after["fsdp-2023"].compute_factor == pytest.approx(0.8, abs=0.02)
    assert 0.8 < after["fsdp-2024"].compute_factor < before - 0.02
    assert after["maxtext-2025"] == prior.software["maxtext-2025"]
    assert 0.5 < fitted.effective < fitted.informed


def test_without_any_rows_the_prior_stands() -> None:
    found = measured_under(with_level("fsdp-2023", 0.8), rows("llm-foundry", 8))
    pools = [Pool("software", "compute_factor", ALL, 0.5, 0.3)]
    fitted = fit(found, prior=start(), pools=pools, families={}, rounds=1)
    nothing = fitted.without(np.ones(len(found), dtype=bool))
    expected = start().software["fsdp-2023"].compute_factor
    assert nothing.software["fsdp-2023"].compute_factor == pytest.approx(expected)
    assert fitted.state.software["fsdp-2023"].compute_factor < expected


def test_pools_are_read_from_rows() -> None:
    row = {
        "table": "hardware",
        "parameter": "gap_s",
        "families": "gpu tpu",
        "shared_scale": "0.8",
        "own_scale": "0",
    }
    assert pools_from([row]) == [Pool("hardware", "gap_s", frozenset({"gpu", "tpu"}), 0.8, 0.0)]


def test_a_part_with_less_power_is_slower_by_the_exponent() -> None:
    chip = KNOWN.accelerator("H100-SXM")
    hardware = replace(hardware_rows()["hopper"], power_exponent=0.5)
    full = matmul_flops(hardware, chip, "bf16")
    half = matmul_flops(hardware, chip.model_copy(update={"tdp_w": 0.5 * (chip.tdp_w or 0.0)}), "bf16")
    assert half / full == pytest.approx(0.5**0.5)
