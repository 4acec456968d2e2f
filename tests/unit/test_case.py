"""The records of a case: what they refuse, what holds between them, the canonical round trip."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from trainplan_models.base import InputError
from trainplan_models.case import TRAINING_KINDS, Case, Shape, TaskKind
from trainplan_models.case_rules import KINDS
from trainplan_models.places import Places, dotted, path_of

DAY_S = 86400.0
SHAPE = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256}


def task(name: str = "a", **changes: Any) -> dict[str, Any]:
    """A pretraining task; ``None`` takes a key away."""
    keys = {"name": name, "kind": "pretrain", "model": "llama-3-8b", "tokens": "1T tokens", **changes}
    return {key: value for key, value in keys.items() if value is not None}


def case(*tasks: dict[str, Any], **keys: Any) -> Case:
    return Case.model_validate({"name": "x", "tasks": list(tasks) or [task()], **keys})


FULL: dict[str, Any] = {
    "name": "everything",
    "question": "safest",
    "start": "2026-01-01",
    "deadline": "2026-03-01",
    "budget": "600k USD",
    "reliability": "high",
    "max_lost_work": "2 hours",
    "tasks": [
        task("data", kind="prepare-data", model=None, tokens=None, duration="5 days", cost="20k USD"),
        task(
            "pretrain",
            after=["data"],
            sequence_length=8192,
            global_batch="4M tokens",
            precision="fp8",
            optimizer="muon",
            dataset={"size": "1.2 TB", "at": "aws/us-east-1", "format_factor": 1.1},
            framework="torchtitan",
            release="day 3",
            due="2026-02-20",
            priority=2,
            accelerators=["H100-SXM"],
            billing="spot",
            labels={"team": "base"},
        ),
        task("sft", kind="sft", model=None, tokens="400M", after="pretrain", rounds=5, lora={"rank": 8}),
        task(
            "rl", kind="rl", model=SHAPE, tokens=None, rollout={"prompts": 512, "steps": 100}, after=["sft"]
        ),
        task(
            "eval", kind="evaluate", model=None, tokens=None, accelerator_hours="5k GPU-hours", after=["rl"]
        ),
    ],
    "resources": {
        "accelerators": ["H100-SXM", "A100-SXM-80GB"],
        "clouds": "aws",
        "regions": ["us-east-1"],
        "billing": ["on-demand", "spot", "capacity-block"],
        "max_nodes": "64 nodes",
        "max_accelerators": 512,
        "quotas": [{"pool": "aws/us-east-1/p5.48xlarge", "on-demand": "8 nodes", "capacity-block": 16}],
        "owned": [
            {
                "name": "dc1",
                "accelerator": "A100-SXM-80GB",
                "nodes": 12,
                "free": [{"from": "day 0", "nodes": 4}, {"from": "day 20", "nodes": 12}],
                "electricity": "0.11 USD/kWh",
                "pue": 1.2,
                "node_price": "10 USD/hour",
                "network": "200 Gbit/s",
                "storage_free": "200 TB",
                "queue_hours_per_day": 20,
            }
        ],
        "grants": [
            {
                "name": "g1",
                "accelerator": "A100-SXM-80GB",
                "nodes": 32,
                "hours": "40k node-hours",
                "units_per_accelerator_hour": 0.125,
                "expires": "2026-06-30",
            }
        ],
        "discounts": {"aws": "12%"},
        "node_counts": [1, 2, "4 nodes"],
    },
    "checkpoints": {"keep_every": "1 day", "keep_for": "30 days", "interval": "30 min"},
    "people": {"engineers": 2.5, "rate": "120 USD/hour"},
    "overheads": {
        "experiments": "150%",
        "delay": "5k USD/day",
        "security": "3k USD/month",
        "cpu_nodes": 3,
        "cpu_node_price": "0.8 USD/hour",
        "migration": "10k USD",
        "known_clouds": ["aws"],
        "logs": {"per_node": "2 GB/day", "keep": "30 days"},
    },
    "assumptions": {"throughput_factor": 0.9, "spares": False},
    "labels": {"project": "assistant"},
}


def test_a_case_is_read_into_canonical_units() -> None:
    full = Case.model_validate(FULL)
    assert full.budget_usd == 600e3
    assert full.reliability == 0.95
    assert full.max_lost_work_s == 7200.0
    pretrain = full.task("pretrain")
    assert pretrain.global_batch_tokens == 4e6
    assert pretrain.billing == ("spot",)
    assert full.resources.owned[0].free[1].since == 20 * DAY_S
    assert full.resources.owned[0].network == 25e9
    assert full.resources.quotas[0].capacity_block == 16
    assert full.resources.grants[0].hours == 40e3
    assert full.resources.node_counts == (1, 2, 4)
    assert full.overheads.experiments == 1.5
    assert full.overheads.logs.per_node_bytes_per_day == 2e9


@pytest.mark.parametrize("data", [FULL, {"name": "x", "tasks": [task()]}])
def test_the_canonical_case_is_json_and_reads_back_equal(data: dict[str, Any]) -> None:
    original = Case.model_validate(data)
    canonical = json.loads(json.dumps(original.canonical(), allow_nan=False))
    again = Case.from_canonical(canonical)
    assert again == original
    assert again.canonical() == original.canonical()


def test_canonical_data_is_not_taken_for_a_case_file() -> None:
    canonical = Case.model_validate(FULL).canonical()
    with pytest.raises(ValidationError, match="has no unit"):
        Case.model_validate(canonical)
    with pytest.raises(ValidationError, match="not a canonical amount"):
        Case.from_canonical(FULL)


def test_defaults_are_those_of_the_format() -> None:
    plain = case()
    assert plain.question == "cheapest"
    assert plain.reliability == 0.8
    assert plain.resources.billing == ("on-demand", "spot")
    assert plain.checkpoints.keep_last == 3
    assert plain.deadline_s is None
    assert plain.due_s(plain.tasks[0]) is None
    assert plain.release_s(plain.tasks[0]) == 0.0


def test_a_task_is_due_at_the_earlier_of_its_own_date_and_the_deadline() -> None:
    both = case(task(due="day 40"), task("b", due="day 10"), task("c"), deadline="30 days")
    assert [both.due_s(one) for one in both.tasks] == [30 * DAY_S, 10 * DAY_S, 30 * DAY_S]


def test_dates_count_from_the_start_of_the_case() -> None:
    dated = case(task(release="2026-01-11"), start="2026-01-01", deadline="2026-01-31")
    assert dated.deadline_s == 30 * DAY_S
    assert dated.release_s(dated.tasks[0]) == 10 * DAY_S


def test_the_model_is_taken_over_from_the_first_task_followed() -> None:
    chain = case(
        task("a"),
        task("b", kind="sft", model=None, after=["a"]),
        task("c", kind="sft", model=None, after=["b", "a"]),
        task("d", model=SHAPE),
        task("e", kind="prepare-data", model=None, tokens=None, duration="1 day"),
    )
    models = {one.name: chain.model_of(one) for one in chain.tasks}
    assert models["a"] == models["b"] == models["c"] == "llama-3-8b"
    assert isinstance(models["d"], Shape)
    assert models["e"] is None


def test_kinds_are_the_kinds_of_the_rules() -> None:
    assert set(KINDS) == set(get_args(TaskKind))
    assert {"rl", "preference", "reward-model"} <= TRAINING_KINDS
    assert not {"evaluate", "generate-data", "prepare-data"} & TRAINING_KINDS
    assert case().tasks[0].trains


def test_a_batch_may_be_given_in_sequences() -> None:
    assert (
        case(task(sequence_length=8192, global_batch="512 sequences")).tasks[0].global_batch_tokens == 2**22
    )
    assert case(task(sequence_length=10, global_batch="1,024 seqs")).tasks[0].global_batch_tokens == 10240


def errors(*tasks: dict[str, Any], **keys: Any) -> dict[str, str]:
    """What is wrong with a case: message by dotted key."""
    with pytest.raises(ValidationError) as refused:
        case(*tasks, **keys)
    return {dotted(error["loc"]): error["msg"] for error in refused.value.errors()}


SFT = {"kind": "sft", "model": None}


@pytest.mark.parametrize(
    ("tasks", "keys", "key", "message"),
    [
        ([task(), task()], {}, "tasks[1].name", "tasks[0] is also named 'a'"),
        ([task(after=["b"])], {}, "tasks[0].after", "there is no task named 'b'"),
        ([task("pre"), task("b", after=["per"])], {}, "tasks[1].after", "Did you mean pre?"),
        ([task(after=["a"])], {}, "tasks[0].after", "a waits for itself"),
        ([task(after=["b"]), task("b", after=["a"])], {}, "tasks[0].after", "a -> b -> a is a circle"),
        (
            [task(after=["c"]), task("b", after=["a"]), task("c", after=["b"])],
            {},
            "tasks[0].after",
            "a -> c -> b -> a is a circle",
        ),
        ([task(tokens=None)], {}, "tasks[0].tokens", "a task of kind pretrain needs tokens"),
        ([task(kind="preference", tokens=None)], {}, "tasks[0].tokens", "needs tokens"),
        ([task(kind="rl", tokens=None)], {}, "tasks[0].rollout", "a task of kind rl needs rollout"),
        (
            [task(), task("b", kind="evaluate", tokens=None)],
            {},
            "tasks[1].rollout",
            "needs one of rollout, tokens",
        ),
        (
            [task(), task("b", kind="prepare-data", tokens=None)],
            {},
            "tasks[1].accelerator_hours",
            "needs one of accelerator_hours, duration, cost",
        ),
        (
            [task(), task("b", kind="evaluate", lora={})],
            {},
            "tasks[1].lora",
            "trains nothing, so lora has no meaning",
        ),
        ([task(rollout={"prompts": 1})], {}, "tasks[0].rollout", "generates nothing"),
        ([task(duration="3 days")], {}, "tasks[0].duration", "is worked out, not given"),
        ([task(model=None)], {}, "tasks[0].model", "there is no model"),
        ([task("a", model=None), task("b", **SFT, after=["a"])], {}, "tasks[1].model", "there is no model"),
        (
            [task(kind="prepare-data", model=None, tokens=None, duration="1 day")],
            {},
            "tasks",
            "no task has a model",
        ),
        ([], {"deadline": "2026-01-01"}, "deadline", "does not say which date day 0 is"),
        ([task(due="2026-01-01")], {}, "tasks[0].due", "does not say which date day 0 is"),
        ([], {"start": "2026-01-02", "deadline": "2026-01-01"}, "deadline", "lies before the start"),
        ([], {"deadline": "0 days"}, "deadline", "the deadline is day 0"),
        ([task(release="day 5", due="day 5")], {}, "tasks[0].due", "due before it may begin"),
        ([], {"question": "most-tokens"}, "question", "no answer without a deadline or a budget"),
        ([], {"question": "safest"}, "question", "no answer without a deadline or a budget"),
        (
            [],
            {"checkpoints": {"interval": "3 hours"}, "max_lost_work": "2 hours"},
            "checkpoints.interval",
            "can lose more than that",
        ),
        ([], {"checkpoints": {"keep_for": "3 days"}}, "checkpoints.keep_for", "no effect without keep_every"),
        ([], {"schema_version": 2}, "schema_version", "reads cases of schema 1, not 2"),
        ([], {"reliability": "100%"}, "reliability", "not a chance between 0% and 100%"),
        ([], {"max_lost_work": "0 s"}, "max_lost_work", "0 is not more than 0"),
        ([], {"people": {"hours_per_week": 169}}, "people.hours_per_week", "less than or equal to 168"),
        ([task(global_batch="512 sequences")], {}, "tasks[0].global_batch", "needs a sequence_length"),
        ([task(global_batch=512)], {}, "tasks[0].global_batch", "could be tokens or sequences"),
        (
            [task(global_batch="4k tokens", sequence_length=8192)],
            {},
            "tasks[0].global_batch",
            "is less than one sequence of 8192",
        ),
        ([task(name="a b")], {}, "tasks[0].name", "pattern"),
        ([task(priority=True)], {}, "tasks[0].priority", "valid integer"),
        ([task(model=7)], {}, "tasks[0].model", "7 is not a model"),
        (
            [task(model={**SHAPE, "heads": 30})],
            {},
            "tasks[0].model.heads",
            "30 heads do not divide hidden 4096",
        ),
        ([task(model={**SHAPE, "kv_heads": 5})], {}, "tasks[0].model.kv_heads", "do not divide 32 heads"),
        ([task(model={**SHAPE, "experts": 8})], {}, "tasks[0].model.experts_per_token", "0 of 8 experts"),
        (
            [task(model={**SHAPE, "experts_per_token": 2})],
            {},
            "tasks[0].model.experts_per_token",
            "no experts",
        ),
        (
            [task(model={**SHAPE, "dense_layers": 40})],
            {},
            "tasks[0].model.dense_layers",
            "more than 32 layers",
        ),
        ([task(model={**SHAPE, "layers": 0})], {}, "tasks[0].model.layers", "0 is not more than 0"),
        ([task(model={**SHAPE, "vocab": "128k"})], {}, "tasks[0].model.vocab", "not an exact number"),
    ],
)
def test_what_does_not_go_together_is_refused_at_its_key(
    tasks: list[dict[str, Any]], keys: dict[str, Any], key: str, message: str
) -> None:
    found = errors(*tasks, **keys)
    assert message in found[key]


OWNED = {"name": "dc", "accelerator": "H100", "nodes": 4}
GRANT = {"name": "g", "accelerator": "H100", "nodes": 4, "hours": "10k GPU-hours"}


@pytest.mark.parametrize(
    ("resources", "key", "message"),
    [
        ({"quotas": [{"pool": "p5.48xlarge", "spot": 3}]}, "quotas[0].pool", "pattern"),
        ({"quotas": [{"pool": "a/b/c"}]}, "quotas[0]", "the quota of a/b/c limits nothing"),
        (
            {"quotas": [{"pool": "a/b/c", "spot": 3}, {"pool": "a/b/c", "on-demand": 3}]},
            "quotas[1].pool",
            "quotas[0] is also for a/b/c",
        ),
        ({"owned": [OWNED, OWNED]}, "owned[1].name", "resources.owned[0] is also named 'dc'"),
        ({"owned": [OWNED], "grants": [{**GRANT, "name": "dc"}]}, "grants[0].name", "also named 'dc'"),
        (
            {"owned": [{**OWNED, "free": [{"from": "day 0", "nodes": 5}]}]},
            "owned[0].free[0].nodes",
            "5 nodes cannot be free of 4",
        ),
        (
            {"owned": [{**OWNED, "free": [{"from": "day 3", "nodes": 1}, {"from": "day 3", "nodes": 2}]}]},
            "owned[0].free",
            "do not rise",
        ),
        ({"owned": [{**OWNED, "nodes": 0}]}, "owned[0].nodes", "0 is not more than 0"),
        ({"owned": [{**OWNED, "pue": 0.9}]}, "owned[0].pue", "greater than or equal to 1"),
        (
            {"owned": [{**OWNED, "free": [{"from": "2026-01-01", "nodes": 1}]}]},
            "owned[0].free[0].from",
            "day 0",
        ),
        ({"grants": [{**GRANT, "expires": "2026-01-01"}]}, "grants[0].expires", "day 0"),
        ({"grants": [{**GRANT, "hours": "40k node-hours"}]}, "grants[0].hours", "in a unit of the grant"),
        ({"grants": [{**GRANT, "hours": 40000}]}, "grants[0].hours", "40000 has no unit"),
        ({"discounts": {"aws": "100%"}}, "discounts.aws", "100% off leaves no price"),
        ({"max_nodes": 0}, "max_nodes", "0 is not more than 0"),
        ({"node_counts": [0]}, "node_counts[0]", "0 is not more than 0"),
        ({"clouds": ["aws", "aws"]}, "clouds", "aws is listed twice"),
    ],
)
def test_resources_that_cannot_be_are_refused_at_their_key(
    resources: dict[str, Any], key: str, message: str
) -> None:
    assert message in errors(resources=resources)[f"resources.{key}"]


def test_all_broken_rules_are_told_at_once() -> None:
    found = errors(task(tokens=None), task("b", after=["z"]), question="safest", deadline=None)
    assert set(found) == {"tasks[0].tokens", "tasks[1].after", "question"}


def test_rules_do_not_report_what_follows_from_another_mistake() -> None:
    circular = errors(task("a", model=None, after=["b"]), task("b", model=None, after=["a"]))
    assert set(circular) == {"tasks[0].after"}


def test_where_a_case_was_written_is_no_part_of_it() -> None:
    plain = case()
    placed = plain.placed(Places("case.yaml", {("tasks",): ("case.yaml", 3), ("tasks", 0): ("case.yaml", 4)}))
    assert placed == plain
    assert copy.deepcopy(placed) == plain
    problem = placed.problem("tasks[0].tokens", "wrong", "Do this.")
    assert str(problem) == "case.yaml:4: tasks[0].tokens: wrong. Do this."
    assert placed.problem("deadline", "wrong").line == 0
    assert plain.problem("tasks[0].tokens", "wrong").file == ""


@pytest.mark.parametrize("path", [("deadline",), ("tasks", 0, "tokens"), ("a", 1, "b", 2, 3)])
def test_dotted_keys_are_paths(path: tuple[str | int, ...]) -> None:
    assert path_of(dotted(path)) == path


def test_a_date_without_start_is_an_input_error_for_code_too() -> None:
    with pytest.raises(InputError, match="has no start"):
        case().seconds_from_start("2026-01-01")
