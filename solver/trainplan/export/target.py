"""What every export target offers, and what all of them share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trainplan.export.launch import Launch, LaunchUnit

if TYPE_CHECKING:
    from jinja2 import Environment

POST_TRAINING = ("sft", "reward-model", "preference", "rl")
"""Kinds of task that start from trained weights."""

NO_TRAINER = ("evaluate", "generate-data", "prepare-data")
"""Kinds of task whose program is the user's own."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line for the README: what it does, and the command itself."""

    does: str
    run: str


def _nothing(_launch: Launch) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Exporter:
    """One export target."""

    name: str
    title: str
    checked: str
    """The launcher version whose own parser the files were checked against."""
    files: Callable[[Launch], dict[str, str]]
    """Relative path to text, without README and order file."""
    commands: Callable[[Launch], list[Command]]
    unsuited: Callable[[LaunchUnit], str] = lambda _unit: ""
    """Why a unit's kind of task is not for this target; empty when it is."""
    refusals: Callable[[LaunchUnit], list[str]] = lambda _unit: []
    """Why this target cannot run the unit as planned; empty when it can."""
    cannot_express: Callable[[Launch], list[str]] = field(default=_nothing)
    """What the plan says and the files of this target cannot."""
    placeholders: Callable[[Launch], list[str]] = field(default=_nothing)
    """What the user has to fill in before the first launch."""
    separate_roles: bool = False
    """Whether it writes down nodes that generate for those that train."""

    def problems(self, unit: LaunchUnit) -> list[str]:
        """Everything that keeps this target from running the unit as planned."""
        if self.separate_roles or not unit.beside:
            return self.refusals(unit)
        others = ", ".join(f"{s.nodes} of {s.pool} ({s.mode})" for s in unit.beside)
        message = (
            f"the plan generates on other nodes ({others}) than it trains on ({unit.segment.nodes} of "
            f"{unit.segment.pool}, {unit.segment.mode}), and {self.title} is exported for one group of nodes a "
            "task; `rollout: {placement: together}` in the case plans for one"
        )
        return [message, *self.refusals(unit)]


def environment() -> Environment:
    """The template environment (files in ``templates/``); an undefined name is an error."""
    return _environment()


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2

    loader = jinja2.PackageLoader("trainplan.export", "templates")
    found = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="<%#",
        comment_end_string="#%>",
        autoescape=False,
    )
    found.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    found.filters["sh"] = shell_word
    return found


def render(template: str, /, **values: Any) -> str:
    """The text a template gives."""
    return environment().get_template(template).render(**values)


def shell_word(value: object) -> str:
    """``value`` as one word of a shell command; ``$NAME`` and ``${NAME...}`` stay variables."""
    import shlex

    text = str(value)
    return f'"{text}"' if "$" in text else shlex.quote(text)


def dump_json(value: Any) -> str:
    """JSON with two spaces and a last line end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def dump_yaml(*documents: Any, header: str = "") -> str:
    """YAML documents in block style, keys in the order given, strings quoted where YAML needs it."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.version = None
    yaml.default_flow_style = False
    yaml.width = 110
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    yaml.dump_all([literal(document) for document in documents], out)
    text = "".join(f"# {line}\n" for line in header.splitlines())
    return text + out.getvalue()


def literal(value: Any) -> Any:
    """The same data with multi-line strings marked to be written as YAML block literals."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    if isinstance(value, str):
        if "\n" in value:
            return LiteralScalarString(value)
        return DoubleQuotedScalarString(value) if value[:1].isdigit() else value
    return value


def header_of(unit: LaunchUnit) -> str:
    """The comment that a unit's files start with."""
    return f"plan {unit.plan_id}, unit {unit.name}"


def mentioned(values: Iterable[str]) -> str:
    """Distinct values in order, as a list in a sentence."""
    return ", ".join(dict.fromkeys(values))


def unit_environment(unit: LaunchUnit) -> dict[str, str]:
    """What a unit's programs find in their environment, whatever starts them."""
    segment, layout = unit.segment, unit.segment.layout
    values = {
        "PLAN": unit.plan_id,
        "UNIT": unit.name,
        "TASK": unit.task.name,
        "TOTAL_STEPS": unit.total_steps,
        "FIRST_STEP": unit.first_step,
        "LAST_STEP": unit.last_step,
        "ROUNDS": unit.task.rounds,
        "ROUND_STEPS": unit.round_steps,
        "CHECKPOINT_STEPS": unit.interval_steps,
        "KEEP_LAST": unit.keep_last,
        "GLOBAL_BATCH": unit.batch_sequences,
        "MICRO_BATCH": layout.micro_batch,
        "ACCUMULATION": unit.accumulation,
        "SEQUENCE_LENGTH": segment.sequence_length,
        "DP": layout.dp,
        "TP": layout.tp,
        "PP": layout.pp,
        "VP": layout.vp,
        "CP": layout.cp,
        "EP": layout.ep,
        "ZERO_STAGE": layout.zero_stage,
        "RECOMPUTE": layout.recompute,
        "PRECISION": layout.precision,
        "OPTIMIZER": unit.task.optimizer,
        "CHECKPOINT_TARGET": segment.checkpoint.target,
    }
    return {f"TRAINPLAN_{key}": str(value) for key, value in values.items()}
