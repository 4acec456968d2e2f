from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan_models import catalog
from trainplan_models.block_recompute import FULL, PARTS, SELECTIVE, full_share, selective_share
from trainplan_models.efficiency import software_of
from trainplan_models.measurements import Unread
from trainplan_models.prediction import Candidates, predict
from trainplan_models.step_time import step_time
from trainplan_models.validation import find, shipped

KNOWN = catalog.builtin()
ROWS = {row["row_id"]: row for row in shipped("throughput")}
TIGHT = "dgxc-bench-0025"
"""A mixture whose printed degrees leave no room for selective recompute and plenty for full."""


def candidates(row_id: str, **cells: str) -> Candidates:
    found = find({**ROWS[row_id], **cells}, KNOWN)
    assert not isinstance(found, Unread)
    return found


def test_shares_of_whole_codes_and_of_those_in_between() -> None:
    codes = np.array([0, SELECTIVE, FULL, FULL + 4])
    assert full_share(codes).tolist() == [0.0, 0.0, 1.0, 4 / PARTS]
    assert selective_share(codes).tolist() == [0.0, 1.0, 0.0, 1.0 - 4 / PARTS]


def test_a_run_recomputes_no_more_layers_than_it_must() -> None:
    found = candidates(TIGHT)
    block = int(np.flatnonzero(found.grid.recompute > FULL)[0])
    whole = int(np.flatnonzero(found.grid.recompute == FULL)[0])
    memory = found.memory
    assert memory.fits[block] and memory.total_bytes[block] > memory.total_bytes[whole]
    one_part_less = (memory.total_bytes[block] - memory.total_bytes[whole]) / (
        FULL + PARTS - found.grid.recompute[block]
    )
    assert memory.total_bytes[block] + one_part_less > memory.usable_bytes


def test_it_takes_less_time_than_full_recompute_and_more_than_selective() -> None:
    found = candidates(TIGHT)
    reading = found.reading
    time = step_time(reading.setup, reading.accelerator, reading.node, found.grid).step_s
    codes = found.grid.recompute
    assert time[codes == SELECTIVE].min() < time[codes > FULL].min() < time[codes == FULL].min()
    assert codes[predict(found).index] > FULL


def test_a_printed_kind_of_recompute_is_taken_at_its_word() -> None:
    assert set(candidates(TIGHT, recompute="full").grid.recompute.tolist()) == {FULL}


def test_tokens_sent_to_every_expert_cost_more_than_one_copy_a_domain() -> None:

    found = candidates("dgxc-bench-0304")
    reading = found.reading
    once, each = (
        replace(software_of("megatron", "megatron-2025"), dispatch_once=flag) for flag in (True, False)
    )
    fast, slow = (
        step_time(reading.setup, reading.accelerator, reading.node, found.grid, software=software).ep_s
        for software in (once, each)
    )
    assert (slow > fast).all()
