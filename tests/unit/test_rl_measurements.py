from __future__ import annotations

import pytest

from trainplan_models import catalog
from trainplan_models.generation_engine import engine_rows
from trainplan_models.measurements import Unread
from trainplan_models.rl_measurements import PROMPT_TOKENS, RlReading, predicted_rate, read_rl
from trainplan_models.validation import judge_throughput, shipped, summary, validate

KNOWN = catalog.builtin()
ROWS = {row["row_id"]: row for row in shipped("throughput") if row["task"] == "rl-grpo"}


def reading(row_id: str, **cells: str) -> RlReading:
    found = read_rl({**ROWS[row_id], **cells}, KNOWN)
    assert isinstance(found, RlReading)
    return found


def test_a_row_says_how_much_is_generated_and_where() -> None:
    found = reading("nemo-rl-0002")
    assert (found.lag, found.tensor, found.passes_count) == (0, 32, 2.0)
    assert (found.samples.prompts, found.samples.response_tokens) == (512, 697.0)
    assert len(found.places) == 1 and found.reading.nodes == 64
    assert found.measured == pytest.approx(512 * (697 + PROMPT_TOKENS) / 111.0 / 512)


def test_generation_side_by_side_takes_the_fastest_legal_split() -> None:
    found = reading("nemo-rl-0003")
    assert found.lag == 1
    assert all(place.generating + place.found.reading.nodes == 64 for place in found.places)
    assert all(place.found.reading.nodes * 8 % 16 == 0 for place in found.places)


def test_the_update_packs_samples_into_full_sequences() -> None:
    setup = reading("nemo-rl-0007").reading.setup
    assert setup.kind == "rl" and setup.document_tokens == 3313
    assert (
        setup.global_batch_sequences == 416
    )  # 512 samples of 3313 tokens in sequences of 4096, for 32 replicas


def test_a_row_without_its_placement_is_not_judged() -> None:
    found = read_rl({**ROWS["nemo-rl-0002"], "status_note": "On policy"}, KNOWN)
    assert isinstance(found, Unread) and "placement" in found.reason


def test_a_model_nobody_knows_is_told_as_the_reason() -> None:
    found = read_rl({**ROWS["nemo-rl-0003"], "model_name": "unheard-of", "hidden": "", "params_b": ""}, KNOWN)
    assert isinstance(found, Unread) and "model shape" in found.reason


def test_an_older_release_is_slower_by_its_named_factor() -> None:
    old, new = (
        reading("nemo-rl-0003", framework=f"NeMo RL v0.{minor}", global_batch_seqs="256") for minor in (5, 7)
    )
    assert predicted_rate(new) / predicted_rate(old) == pytest.approx(old.slowdown / new.slowdown)
    assert old.slowdown > 1.0 == new.slowdown


def test_a_replica_too_small_for_the_weights_has_a_reason() -> None:
    small = ROWS["nemo-rl-0002"]["status_note"].replace("[32,1]", "[2,1]")
    judged = judge_throughput({**ROWS["nemo-rl-0002"], "status_note": small}, KNOWN)
    assert judged.predicted is None and "does not hold" in (judged.reason or "")


def test_shipped_step_times_hold_and_stay_out_of_the_figures_of_training() -> None:
    result = validate(ROWS.values(), [], [], KNOWN)
    found = summary(result)
    assert found["throughput"] is None
    assert found["reinforcement_learning"]["count"] >= 60
    assert found["reinforcement_learning"]["median"] < 0.15


def test_every_parameter_lies_between_its_bounds() -> None:
    for row in engine_rows().values():
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
