"""Case files: every kind of bad input is told by file, line, key and the right way to write it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from trainplan_models import catalog
from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case
from trainplan_models.case_keys import _ALSO_CALLED, _homes, keys_of
from trainplan_models.casefile import case_from_text, case_schema, check_against, load_case
from trainplan_models.catalog import Catalog

DAY_S = 86400.0
GOOD = """\
name: llama-8b
deadline: 30 days   # from the start
budget: 600k USD
tasks:
  - name: pretrain
    kind: pretrain
    model: llama-3-8b
    tokens: 300B tokens
  - name: sft
    kind: sft
    after: [pretrain]
    tokens: 400M tokens
resources:
  clouds: [aws, gcp]
  quotas:
    - {pool: aws/us-east-1/p5.48xlarge, on-demand: 8 nodes}
  owned:
    - {name: dc1, accelerator: A100-SXM-80GB, nodes: 12}
"""


def problems_of(text: str, *overrides: str) -> list[Problem]:
    with pytest.raises(InputError) as refused:
        case_from_text(text, "case.yaml", overrides)
    return refused.value.problems


def swapped(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_a_good_file_is_read() -> None:
    case = case_from_text(GOOD)
    assert case.deadline_s == 30 * DAY_S
    assert case.budget_usd == 600e3
    assert [task.name for task in case.tasks] == ["pretrain", "sft"]
    assert case.resources.quotas[0].on_demand == 8


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "fix"),
    [
        # units
        (swapped("30 days", "30"), 2, "deadline", "30 has no unit", "If 30 days is meant"),
        (swapped("30 days", "-30 days"), 2, "deadline", "'-30 days' is negative", "30 days"),
        (swapped("30 days", ".inf"), 2, "deadline", "inf is not a finite number", "30 days"),
        (swapped("30 days", ".nan"), 2, "deadline", "nan is not a finite number", "30 days"),
        (swapped("30 days", "12:30"), 2, "deadline", "is not a unit for a time", "2026-09-30"),
        (swapped("30 days", "yes"), 2, "deadline", "'yes' is not a time", "30 days"),
        (swapped("30 days", "true"), 2, "deadline", "true is not a time", "30 days"),
        (swapped("30 days", "[30, days]"), 2, "deadline", "a list is not a time", "30 days"),
        (swapped("30 days", "2026-09-31"), 2, "deadline", "2026-09-31 is not a date", "year-month-day"),
        (swapped("30 days", "2026-09-30"), 2, "deadline", "does not say which date day 0 is", "Add `start:"),
        (swapped("600k USD", "600000"), 3, "budget", "600000 has no unit", "If 600k USD is meant"),
        (swapped("600k USD", "1e9"), 3, "budget", "1000000000 has no unit", "If 1B USD is meant"),
        (swapped("600k USD", "600k EUR"), 3, "budget", "is in EUR", "Convert it to USD"),
        (swapped("300B tokens", "300B tokns"), 8, "tasks[0].tokens", "is not a unit", "300 B tokens"),
        (swapped("300B tokens", "0 tokens"), 8, "tasks[0].tokens", "0 is not more than 0", "above 0"),
        (
            swapped("8 nodes", "8 GPUs"),
            16,
            "resources.quotas[0].on-demand",
            "number of nodes is wanted",
            "8 nodes",
        ),
        (swapped("nodes: 12", "nodes: 2.5"), 18, "resources.owned[0].nodes", "not a whole number", "8 nodes"),
        (
            swapped("nodes: 12", "nodes: 12, storage_free: 80 Gb"),
            18,
            "resources.owned[0].storage_free",
            "is in bits, and bytes are wanted",
            "10 GB",
        ),
        (GOOD + "reliability: 95\n", 19, "reliability", "95 has no percent sign", "95% or 0.95"),
        (
            GOOD + "reliability: hihg\n",
            19,
            "reliability",
            "'hihg' is not a reliability",
            "Did you mean high?",
        ),
        (GOOD + "people: {engineers: two}\n", 19, "people.engineers", "'two' is not a number", "1.5"),
        (
            GOOD + "people: {hours_per_week: 200}\n",
            19,
            "people.hours_per_week",
            "200 is more than 168",
            "or less",
        ),
        (
            swapped("nodes: 12", "nodes: 12, pue: 0.5"),
            18,
            "resources.owned[0].pue",
            "0.5 is less than 1",
            "Write 1 or more",
        ),
        # keys
        (swapped("deadline", "deadlin"), 2, "deadlin", "unknown key", "Did you mean `deadline`?"),
        (swapped("budget", "Budget"), 3, "Budget", "unknown key", "Did you mean `budget`?"),
        (swapped("budget", "budget_usd"), 3, "budget_usd", "unknown key", "Did you mean `budget`?"),
        (swapped("budget", "max_cost"), 3, "max_cost", "unknown key", "Did you mean `budget`?"),
        (swapped("    after", "    depends_on"), 11, "tasks[1].depends_on", "unknown key", "`after`"),
        (swapped("    tokens", "    tokns"), 8, "tasks[0].tokns", "unknown key", "Did you mean `tokens`?"),
        (
            swapped("on-demand", "on_demand"),
            16,
            "resources.quotas[0].on_demand",
            "unknown key",
            "Did you mean `on-demand`?",
        ),
        (GOOD + "max_nodes: 8\n", 19, "max_nodes", "unknown key", "`max_nodes` belongs under `resources`"),
        (GOOD + "gpus: 8\n", 19, "gpus", "unknown key", "`accelerators` belongs under"),
        (GOOD + "sequence_length: 8\n", 19, "sequence_length", "unknown key", "belongs under `tasks[]`"),
        (GOOD + "zebra: 8\n", 19, "zebra", "unknown key", "Keys here: schema_version, name, question"),
        (GOOD + "budget: 3 USD\n", 19, "budget", "given twice, first on line 3", "Keep one"),
        (
            swapped("    kind: sft", "    kind: sft\n    kind: sft"),
            11,
            "tasks[1].kind",
            "given twice",
            "Keep one",
        ),
        (GOOD + "1: 2\n", 19, "1", "unknown key", "Keys here"),
        (GOOD + "? [a]\n: 2\n", 19, "", "a key that is not plain text", "key: value"),
        # choices, missing, wrong form
        (GOOD + "question: best\n", 19, "question", "'best' is not a question", "cheapest, fastest"),
        (swapped("kind: sft", "kind: stf"), 10, "tasks[1].kind", "'stf' is not a kind", "Did you mean sft?"),
        (swapped("    kind: sft\n", ""), 9, "tasks[1].kind", "the key is missing", "Add `kind: pretrain`"),
        (swapped("kind: sft", "kind:"), 10, "tasks[1].kind", "the key is missing", "Add `kind: pretrain`"),
        (swapped("name: llama-8b\n", ""), 0, "name", "the key is missing", "Add `name: llama-8b`"),
        (swapped("name: llama-8b", "name:"), 1, "name", "the key is missing", "Add `name: llama-8b`"),
        (swapped("name: llama-8b", "name: ''"), 1, "name", "nothing is given", "Write it like llama-8b"),
        ("name: x\n", 0, "tasks", "the key is missing", "items that begin with `- name: ...`"),
        ("name: x\ntasks:\n", 2, "tasks", "the key is missing", "items that begin with `- name: ...`"),
        ("name: x\ntasks: []\n", 2, "tasks", "nothing is given", "begins with `- name: ...`"),
        ("name: x\ntasks: {a: {kind: sft}}\n", 2, "tasks", "a mapping is not a list", "`- name: ...`"),
        ("name: x\ntasks: [pretrain]\n", 2, "tasks[0]", "'pretrain' is not a mapping", "name, kind, model"),
        ("name: x\ntasks:\n  -\n", 3, "tasks[0]", "an empty value is not a mapping", "name, kind, model"),
        (swapped("name: sft", "name: s f t"), 9, "tasks[1].name", "not a name that can be used", "sft-1"),
        (swapped("llama-3-8b", "[a]"), 7, "tasks[0].model", "a list is not a model", "catalogue name"),
        (swapped("[aws, gcp]", "'aws, gcp'"), 14, "resources.clouds", "is not a name", "[first, second]"),
        (swapped("[aws, gcp]", "{aws: 1}"), 14, "resources.clouds", "not a list of names", "[first, second]"),
        (swapped("[aws, gcp]", "[aws, aws]"), 14, "resources.clouds", "aws is listed twice", "once"),
        (GOOD + "people: 3\n", 19, "people", "3 is not a mapping", "engineers, rate, hours_per_week"),
        (GOOD + "labels: [a]\n", 19, "labels", "a list is not a mapping", "{key: value}"),
        (GOOD + "labels: {a: [b]}\n", 19, "labels.a", "a list is not text", "text"),
        (
            GOOD + "checkpoints: {asynchronous: maybe}\n",
            19,
            "checkpoints.asynchronous",
            "neither true",
            "true or false",
        ),
        (
            swapped("    kind: sft", "    kind: sft\n    rounds: true"),
            11,
            "tasks[1].rounds",
            "true is not",
            "8 or 1000",
        ),
        (
            swapped("    kind: sft", "    kind: sft\n    priority: x"),
            11,
            "tasks[1].priority",
            "not a whole number",
            "1",
        ),
        # rules between keys
        (
            swapped("[pretrain]", "[pretain]"),
            11,
            "tasks[1].after",
            "no task named 'pretain'",
            "Did you mean pretrain?",
        ),
        (
            swapped("name: sft", "name: pretrain"),
            9,
            "tasks[1].name",
            "also named 'pretrain'",
            "name of its own",
        ),
        (swapped("    tokens: 400M tokens\n", ""), 9, "tasks[1].tokens", "needs tokens", "Add `tokens:"),
        (
            swapped("aws/us-east-1/p5.48xlarge", "p5.48xlarge"),
            16,
            "resources.quotas[0].pool",
            "not a pool that can be used",
            "aws/us-east-1/p5.48xlarge",
        ),
        # YAML
        (swapped("  clouds", "\tclouds"), 14, "", "not valid YAML", "Indent with spaces"),
        (swapped("budget: 600k", "budget:600k"), 4, "", "not valid YAML", "space after the colon"),
        (
            swapped("  clouds", "clouds: x\n  clouds"),
            15,
            "",
            "not valid YAML",
            "Indent keys of one level alike",
        ),
        (swapped("[aws, gcp]", "[aws, gcp"), 15, "", "not valid YAML", "Close every ["),
        (swapped("llama-3-8b", "@model"), 7, "", "not valid YAML", "in quotes"),
        (swapped("llama-3-8b", "*model"), 7, "", "not valid YAML", "Define it with `&name`"),
        (swapped("llama-3-8b", "'llama"), 19, "", "not valid YAML", "Close the quote"),
        (GOOD + "---\nname: x\n", 19, "", "not valid YAML", "Keep one document"),
        (
            swapped("llama-3-8b", "!secret x"),
            7,
            "tasks[0].model",
            "the tag !secret has no meaning",
            "without a tag",
        ),
        (
            swapped("  clouds", "  <<: 3\n  clouds"),
            14,
            "resources",
            "<< is not followed by a mapping",
            "&name",
        ),
        (
            swapped("nodes: 12", "nodes: " + "9" * 5000),
            18,
            "resources.owned[0].nodes",
            "not a number",
            "smaller",
        ),
        ("", 0, "", "the file is empty", "Begin with `name:"),
        ("# only a comment\n", 0, "", "the file is empty", "Begin with `name:"),
        ("- name: x\n", 0, "", "the file is a list, not keys", "Begin with `name:"),
        ("name:x\n", 0, "", "the file is text, not keys: 'name:x'", "space after every colon"),
        ("42\n", 0, "", "the file is 42, not keys", "Begin with `name:"),
        ("a:\n" + "[" * 5000, 2, "", "nested too deeply", "Close every ["),
        ("- " * 5000, 0, "", "nested too deeply", ""),
        ("name: \x01\n", 0, "", "not readable as YAML", ""),
        ("a: &a {b: *a}\n", 1, "a.b", "an anchor that contains itself", "Write the value out"),
    ],
)
def test_bad_input_is_told_by_line_key_and_the_right_way(
    text: str, line: int, key: str, message: str, fix: str
) -> None:
    found = [problem for problem in problems_of(text) if problem.key == key and message in problem.message]
    assert found, problems_of(text)
    assert found[0].file == "case.yaml"
    assert found[0].line == line
    assert fix in found[0].fix


SINGLE = [
    swapped("deadline", "deadlin"),
    swapped("    tokens", "    tokns"),
    swapped("kind: sft", "kind: stf"),
    swapped("300B tokens", "300"),
    swapped("name: sft", "name: s f t"),
    swapped("[pretrain]", "[pretain]"),
    "name: x\ntasks: {a: {kind: sft}}\n",
    "name: x\ntasks: [pretrain]\n",
]


@pytest.mark.parametrize("text", SINGLE)
def test_one_mistake_is_one_problem(text: str) -> None:
    assert len(problems_of(text)) == 1


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = (
        GOOD.replace("30 days", "30")
        .replace("600k USD", "600k EUR")
        .replace("kind: sft", "kind: stf")
        .replace("[pretrain]", "[pretain]")
        .replace("clouds", "cloud")
        .replace("name: dc1, ", "")
        + "budget: 3\nquestion: best\n"
    )
    assert [(problem.line, problem.key) for problem in problems_of(text)] == [
        (2, "deadline"),
        (3, "budget"),
        (10, "tasks[1].kind"),
        (11, "tasks[1].after"),
        (14, "resources.cloud"),
        (18, "resources.owned[0].name"),
        (19, "budget"),
        (20, "question"),
    ]


def test_a_misspelled_key_still_has_its_value_checked() -> None:
    assert [str(problem) for problem in problems_of(swapped("deadline: 30 days", "deadlin: 30"))] == [
        "case.yaml:2: deadlin: unknown key. Did you mean `deadline`?",
        "case.yaml:2: deadline: 30 has no unit. If 30 days is meant, write that. "
        "Write it like 30 days, 36 hours or 2 weeks. A date is written 2026-09-30.",
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("1.10", "1.10"),
        ("010", "010"),
        ("true", "true"),
        ("2026-09-30", "2026-09-30"),
        ("1e3", "1e3"),
        ("'8'", "8"),
    ],
)
def test_labels_and_names_are_text_as_written(written: str, read: str) -> None:
    case = case_from_text(GOOD.replace("llama-8b", written, 1) + f"labels: {{release: {written}}}\n")
    assert case.labels == {"release": read}
    assert case.name == read


def test_keys_without_a_value_are_keys_left_out() -> None:
    assert case_from_text(
        GOOD + "people:\noverheads:\n  # experiments: 15%\nreliability: ~\n"
    ) == case_from_text(GOOD)


def test_anchors_and_merge_keys_work() -> None:
    text = GOOD.replace("  - name: sft", "  - &base\n    name: sft") + "labels: {a: b}\n"
    text = text.replace("resources:", "  - <<: *base\n    name: sft2\n    tokens: 1B\nresources:")
    case = case_from_text(text)
    assert case.tasks[2].after == ("pretrain",)
    assert (case.tasks[2].name, case.tasks[2].tokens) == ("sft2", 1e9)


def test_an_explosion_of_anchors_is_refused() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (problem,) = problems_of("\n".join(levels))
    assert "more than 100000 values" in problem.message


@pytest.mark.parametrize("start", ["2026-01-01", "'2026-01-01'", "2026-01-01T00:00:00"])
def test_dates_of_yaml_are_dates(start: str) -> None:
    case = case_from_text(GOOD.replace("30 days", "2026-01-31") + f"start: {start}\n")
    assert case.deadline_s == 30 * DAY_S


@pytest.mark.parametrize(
    "tokens", ["2T", "2 trillion", "2e12 tokens", "2_000_000_000_000 tokens", "2000B tokens"]
)
def test_tokens_may_be_written_in_many_ways(tokens: str) -> None:
    assert case_from_text(swapped("300B tokens", tokens)).tasks[0].tokens == 2e12


# ------------------------------------------------------------------------------------------ files
def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def problem_of_file(path: Path) -> Problem:
    with pytest.raises(InputError) as refused:
        load_case(path)
    (problem,) = refused.value.problems
    assert problem.file == str(path)
    return problem


def test_a_file_is_loaded_and_remembers_its_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "case.yaml", GOOD)
    case = load_case(path)
    assert case == load_case(str(path))
    problem = case.problem("tasks[1].after", "wrong")
    assert (problem.file, problem.line) == (str(path), 11)


@pytest.mark.parametrize(
    ("content", "line", "message", "fix"),
    [
        (b"name: caf\xe9\n", 1, "not UTF-8 text: byte 0xe9", "Save the file as UTF-8"),
        (b"name: x\n# \xff\n", 2, "not UTF-8 text: byte 0xff", "Save the file as UTF-8"),
        (GOOD.encode("utf-16"), 0, "UTF-16", "Save the file as UTF-8"),
        (b"name: x\n\0\n", 2, "zero byte", "YAML file"),
        (b"# " + b"x" * 100_000, 0, "larger than 100 kB", "few kB"),
        (b"", 0, "the file is empty", "trainplan init"),
    ],
)
def test_files_that_are_no_text_are_refused(
    tmp_path: Path, content: bytes, line: int, message: str, fix: str
) -> None:
    problem = problem_of_file(write(tmp_path / "case.yaml", content))
    assert message in problem.message
    assert fix in problem.fix
    assert problem.line == line


def test_utf8_with_a_byte_order_mark_and_windows_line_ends_is_fine(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + GOOD.replace("llama-8b", "café").replace("\n", "\r\n").encode()
    case = load_case(write(tmp_path / "case.yaml", content))
    assert case.name == "café"
    assert case.problem("budget", "x").line == 3


def test_a_missing_file_names_the_one_that_was_meant(tmp_path: Path) -> None:
    write(tmp_path / "llama.yaml", GOOD)
    problem = problem_of_file(tmp_path / "lama.yaml")
    assert problem.message == "there is no such file"
    assert "llama.yaml" in problem.fix
    assert "trainplan init" in problem_of_file(tmp_path / "zzz.yaml").fix
    assert "no folder" in problem_of_file(tmp_path / "nowhere" / "case.yaml").fix


def test_a_folder_is_refused_with_the_cases_in_it(tmp_path: Path) -> None:
    write(tmp_path / "llama.yaml", GOOD)
    problem = problem_of_file(tmp_path)
    assert "is a folder" in problem.message
    assert "llama.yaml" in problem.fix


def test_a_name_no_file_can_have_is_refused() -> None:
    assert "cannot be read" in problem_of_file(Path("a\0b")).message


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "case.yaml", GOOD)
    monkeypatch.setattr(Path, "open", refuse)
    assert problem_of_file(path).message == "cannot be read: Permission denied"


# ------------------------------------------------------------------------------------------ models in files
def model_of_file(path: Path, *overrides: str) -> object:
    return load_case(path, overrides).tasks[0].model


def test_a_model_path_is_taken_from_the_folder_of_the_case(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "{}")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "config.json", "{}")
    path = tmp_path / "case.yaml"
    for given, found in [
        ("config.json", "config.json"),
        ("./config.json", "config.json"),
        ("sub/config.json", "sub/config.json"),
        ("sub/../config.json", "config.json"),
        ("sub", "sub/config.json"),
        (".", "config.json"),
        (str(tmp_path / "config.json"), "config.json"),
    ]:
        write(path, swapped("llama-3-8b", given))
        assert model_of_file(path) == str(tmp_path / found)


def test_names_of_models_are_no_paths(tmp_path: Path) -> None:
    (tmp_path / "llama-3-8b").mkdir()
    path = tmp_path / "case.yaml"
    for name in ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"):
        assert model_of_file(write(path, swapped("llama-3-8b", name))) == name


def test_a_missing_model_file_is_told_at_its_line(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "{}")
    path = write(tmp_path / "case.yaml", swapped("llama-3-8b", "confg.json"))
    problem = problem_of_file(path)
    assert problem.message == f"there is no file {tmp_path / 'confg.json'}"
    assert (problem.line, problem.key) == (7, "tasks[0].model")
    assert "config.json" in problem.fix


def test_a_model_path_in_an_override_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cases").mkdir()
    write(tmp_path / "mine.json", "{}")
    path = write(tmp_path / "cases" / "case.yaml", GOOD)
    monkeypatch.chdir(tmp_path)
    assert model_of_file(path, "tasks.pretrain.model=mine.json") == "mine.json"


# ------------------------------------------------------------------------------------------ overrides
@pytest.mark.parametrize(
    ("overrides", "key", "expected"),
    [
        (["deadline=20 days"], "deadline", 20 * DAY_S),
        (["deadline = 20 days"], "deadline", 20 * DAY_S),
        (["deadline=20 days", "deadline=10 days"], "deadline", 10 * DAY_S),
        (["deadline="], "deadline", None),
        (["name=a=b"], "name", "a=b"),
        (["name=1.10"], "name", "1.10"),
        (["resources.billing=[spot]"], "resources.billing", ("spot",)),
        (["resources.billing=spot"], "resources.billing", ("spot",)),
        (["resources.max_nodes=8"], "resources.max_nodes", 8),
        (["tasks.pretrain.tokens=1T tokens"], "tasks.0.tokens", 1e12),
        (["tasks[0].tokens=1T tokens"], "tasks.0.tokens", 1e12),
        (["tasks.0.tokens=1T tokens"], "tasks.0.tokens", 1e12),
        (["tasks.sft.labels.team=x"], "tasks.1.labels", {"team": "x"}),
        (["labels.a.b=x"], "labels", {"a.b": "x"}),
        (["resources.owned.dc1.nodes=3"], "resources.owned.0.nodes", 3),
        (["resources.quotas[0].on-demand=2 nodes"], "resources.quotas.0.on_demand", 2),
        (
            ["resources.discounts.aws/us-east-1/p5.48xlarge=12%"],
            "resources.discounts",
            {"aws/us-east-1/p5.48xlarge": 0.12},
        ),
        (["people={engineers: 2, rate: 120 USD/hour}"], "people.engineers", 2.0),
        (["people.engineers=2"], "people.engineers", 2.0),
        (["overheads.logs.keep=3 days"], "overheads.logs.keep_s", 3 * DAY_S),
        (["tasks.pretrain.name=base", "tasks.sft.after=[base]"], "tasks.1.after", ("base",)),
    ],
)
def test_overrides_change_the_case(overrides: list[str], key: str, expected: object) -> None:
    value: Any = case_from_text(GOOD, overrides=overrides)
    for step in key.split("."):
        value = value[int(step)] if step.isdigit() else getattr(value, step)
    assert value == expected


def test_an_override_names_a_task_with_dots() -> None:
    case = case_from_text(GOOD.replace("sft", "sft.v1.2", 1), overrides=["tasks.sft.v1.2.rounds=7"])
    assert case.tasks[1].rounds == 7


@pytest.mark.parametrize(
    ("override", "key", "message", "fix"),
    [
        ("deadline=20", "deadline", "20 has no unit", "20 days"),
        ("deadlin=20 days", "deadlin", "unknown key", "`deadline`"),
        ("recources.billing=[spot]", "recources", "unknown key", "Did you mean `resources`?"),
        ("resources.biling=[spot]", "resources.biling", "unknown key", "Did you mean `billing`?"),
        (
            "tasks.pretain.tokens=1T",
            "tasks.pretain.tokens",
            "tasks has none named 'pretain'",
            "Did you mean pretrain?",
        ),
        ("tasks.pretrain.tokns=1T", "tasks[0].tokns", "unknown key", "`tokens`"),
        ("tasks[2].tokens=1T", "tasks[2].tokens", "tasks[2] does not exist", "tasks has 2, counted from 0"),
        ("tasks[0]=", "tasks[0]", "cannot be removed", "Set the whole list"),
        ("tasks.sft.tokens=", "tasks[1].tokens", "needs tokens", "Add `tokens:"),
        ("tasks=", "tasks", "the key is missing", "- name:"),
        ("deadline", "deadline", "not of the form key=value", "deadline=20 days"),
        ("=20 days", "=20 days", "not of the form key=value", "deadline=20 days"),
        ("a..b=3", "a..b", "not of the form key=value", "deadline=20 days"),
        ("[0]=3", "[0]", "not of the form key=value", "deadline=20 days"),
        ("name.x=3", "name.x", "name has no keys under it", "Set name as a whole"),
        (
            "tasks.pretrain.model.layers=3",
            "tasks.pretrain.model.layers",
            "has no keys under it",
            "as a whole",
        ),
        ("people[0]=3", "people[0]", "people is not a list", "Leave [..] out"),
        (
            "resources.grants.g.nodes=3",
            "resources.grants.g.nodes",
            "the case has no resources.grants",
            "case file",
        ),
        ("deadline=[1", "deadline", "not valid YAML", "Close every ["),
        ("labels={a: 1, a: 2}", "labels.a", "given twice", "Keep one"),
        ("labels=!x 1", "labels", "the tag !x has no meaning", "without a tag"),
    ],
)
def test_bad_overrides_are_told_like_a_file(override: str, key: str, message: str, fix: str) -> None:
    (problem,) = problems_of(GOOD, override)
    assert (problem.file, problem.line, problem.key) == ("--set", 0, key)
    assert message in problem.message
    assert fix in problem.fix


def test_mistakes_of_file_and_overrides_are_told_together() -> None:
    found = problems_of(swapped("600k USD", "600k"), "deadline=20", "tasks.x.tokens=3")
    assert [(problem.file, problem.key) for problem in found] == [
        ("case.yaml", "budget"),
        ("--set", "tasks.x.tokens"),
        ("--set", "deadline"),
    ]


def test_an_override_repairs_the_file() -> None:
    assert case_from_text(swapped("30 days", "30"), overrides=["deadline=30 days"]).deadline_s == 30 * DAY_S


# ------------------------------------------------------------------------------------------ keys and schema
def test_what_other_tools_call_it_leads_to_a_key_that_exists() -> None:
    known = {*keys_of(Case), *(key for key, _ in _homes())}
    assert set(_ALSO_CALLED.values()) <= known
    assert not set(_ALSO_CALLED) & known - {"cost"}


def test_the_schema_covers_the_format() -> None:
    schema = case_schema()
    assert set(schema["properties"]) == set(keys_of(Case))
    assert schema["additionalProperties"] is False
    text = json.dumps(schema)
    assert "1.4T tokens" in text
    assert "Tokens trained on in one round." in text


def test_a_good_file_meets_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from ruamel.yaml import YAML

    validator = jsonschema.Draft202012Validator(case_schema())
    good = YAML(typ="safe", pure=True).load(GOOD)
    assert list(validator.iter_errors(good)) == []
    assert list(validator.iter_errors({**good, "deadline": 30}))
    assert list(validator.iter_errors({**good, "deadlin": "30 days"}))


# ------------------------------------------------------------------------------------------ the catalogue
@functools.cache
def shipped() -> Catalog:
    return catalog.builtin()


def unknown(text: str) -> Problem:
    with pytest.raises(InputError) as refused:
        check_against(case_from_text(text, "case.yaml"), shipped())
    (problem,) = refused.value.problems
    assert problem.file == "case.yaml"
    return problem


def test_a_good_case_is_known_to_the_catalogue() -> None:
    check_against(case_from_text(GOOD), shipped())


IN_SFT = "    after: [pretrain]\n"


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "fix"),
    [
        (
            swapped("llama-3-8b", "lama-3-8b"),
            7,
            "tasks[0].model",
            "'lama-3-8b' is not a known model",
            "llama-3-8b",
        ),
        (swapped("[aws, gcp]", "[aws, gpc]"), 14, "resources.clouds[1]", "'gpc' is not a known cloud", "gcp"),
        (
            swapped("p5.48xlarge", "p5.48xlrge"),
            16,
            "resources.quotas[0].pool",
            "is not a known pool",
            "Did you mean aws/us-east-1/p5.48xlarge",
        ),
        (
            swapped("A100-SXM-80GB", "Z100"),
            18,
            "resources.owned[0].accelerator",
            "'Z100' is not a known accelerator",
            "Did you mean",
        ),
        (
            swapped("resources:\n", "resources:\n  accelerators: [H100-SXM, Q100]\n"),
            14,
            "resources.accelerators[1]",
            "'Q100' is not a known accelerator",
            "100",
        ),
        (
            swapped("resources:\n", "resources:\n  billing: [sopt]\n"),
            14,
            "resources.billing[0]",
            "'sopt' is not a known billing mode",
            "Did you mean spot?",
        ),
        (
            swapped("resources:\n", "resources:\n  regions: [us-east-11]\n"),
            14,
            "resources.regions[0]",
            "'us-east-11' is not a known region",
            "us-east-1",
        ),
        (
            swapped("resources:\n", "resources:\n  regions: [aws/us-east-1]\n"),
            14,
            "resources.regions[0]",
            "names the cloud too",
            "Write us-east-1",
        ),
        (
            swapped("[aws, gcp]", "[gcp]\n  regions: [us-east-1]"),
            15,
            "resources.regions[0]",
            "us-east-1 is a region of aws",
            "Add the cloud",
        ),
        (
            swapped("resources:\n", "resources:\n  discounts: {aws: 3%, azur: 3%}\n"),
            14,
            "resources.discounts.azur",
            "'azur' is not a known cloud or pool",
            "azure",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    accelerators: [H200]\n").replace(
                "resources:\n", "resources:\n  accelerators: [H100-SXM]\n"
            ),
            12,
            "tasks[1].accelerators[0]",
            "H200 is not among resources.accelerators",
            "Add it there",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    billing: [capacity-block]\n"),
            12,
            "tasks[1].billing[0]",
            "capacity-block is not among resources.billing",
            "Add it there",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    billing: [sopt]\n"),
            12,
            "tasks[1].billing[0]",
            "'sopt' is not a known billing mode",
            "spot",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    dataset: {{size: 3 TB, at: aws/us-est-1}}\n"),
            12,
            "tasks[1].dataset.at",
            "is not a known cloud/region or owned pool",
            "aws/us-east-1",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    optimizer: adam\n"),
            12,
            "tasks[1].optimizer",
            "'adam' is not a known optimizer",
            "Did you mean adamw?",
        ),
        (
            swapped(IN_SFT, f"{IN_SFT}    framework: megatrn\n"),
            12,
            "tasks[1].framework",
            "'megatrn' is not a known framework",
            "Did you mean megatron?",
        ),
        (GOOD + "overheads: {known_clouds: [awz]}\n", 19, "overheads.known_clouds[0]", "'awz' is not", "aws"),
        (
            GOOD + "assumptions: {failure_profile: x}\n",
            19,
            "assumptions.failure_profile",
            "'x' is not",
            "Known:",
        ),
        (GOOD + "assumptions: {spot_profile: x}\n", 19, "assumptions.spot_profile", "'x' is not", "Known:"),
        (GOOD + "assumptions: {software: x}\n", 19, "assumptions.software", "'x' is not", "catalog show"),
    ],
)
def test_unknown_names_are_told_with_the_nearest_known(
    text: str, line: int, key: str, message: str, fix: str
) -> None:
    problem = unknown(text)
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert fix in problem.fix


def test_aliases_and_owned_pools_are_known() -> None:
    text = swapped(IN_SFT, f"{IN_SFT}    dataset: {{size: 3 TB, at: dc1}}\n    billing: [owned]\n")
    check_against(case_from_text(text.replace("A100-SXM-80GB", "nvidia-a100-80gb")), shipped())


def test_all_unknown_names_are_told_at_once() -> None:
    text = swapped("llama-3-8b", "lama-3-8b").replace("[aws, gcp]", "[aws, gpc]").replace("p5.48", "p6.48")
    with pytest.raises(InputError) as refused:
        check_against(case_from_text(text), shipped())
    assert [problem.line for problem in refused.value.problems] == [7, 14, 16]
