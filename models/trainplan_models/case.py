"""What the user asks: tasks, goals, limits, resources, assumptions. The YAML schema is this module.

Records are read from YAML by their aliases, with a unit in every quantity; and from ``Case.canonical`` data
by attribute name, with bare numbers in canonical units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from trainplan_models.base import Problem, Record
from trainplan_models.case_resources import Free, Freeze, Grant, Owned, PriceChange, Quota, Resources
from trainplan_models.case_rules import mistakes_of
from trainplan_models.case_tasks import (
    TRAINING_KINDS,
    BatchStep,
    Dataset,
    Lora,
    Precision,
    Rollout,
    Shape,
    Task,
    TaskKind,
)
from trainplan_models.places import Places, path_of
from trainplan_models.units import (
    CANONICAL,
    BytesPerDay,
    Count,
    DateOrDuration,
    Fraction,
    IsoDate,
    Names,
    Nodes,
    Number,
    Positive,
    PositiveCount,
    Reliability,
    Seconds,
    Usd,
    UsdPerDay,
    UsdPerHour,
    UsdPerMonth,
    refuse_all,
    seconds_from_start,
)

__all__ = [
    "SCHEMA_VERSION",
    "TRAINING_KINDS",
    "Assumptions",
    "BatchStep",
    "Case",
    "Checkpoints",
    "Dataset",
    "Free",
    "Freeze",
    "Grant",
    "Logs",
    "Lora",
    "Overheads",
    "Owned",
    "People",
    "Precision",
    "PriceChange",
    "Question",
    "Quota",
    "Resources",
    "Rollout",
    "Shape",
    "Task",
    "TaskKind",
]

SCHEMA_VERSION = 1

Question = Literal["cheapest", "fastest", "most-tokens", "safest"]


class Checkpoints(Record):
    """What is kept."""

    keep_last: PositiveCount = 3
    """The newest checkpoints that are kept."""
    keep_every_s: Annotated[Seconds, Positive] | None = Field(default=None, alias="keep_every")
    """A milestone is kept this often, for ``keep_for``."""
    keep_for_s: Annotated[Seconds, Positive] | None = Field(default=None, alias="keep_for")
    """How long a milestone is kept; absent: to the end."""
    copy_to_second_region: bool = False
    """Whether milestones are copied to another region."""
    interval_s: Annotated[Seconds, Positive] | None = Field(default=None, alias="interval")
    """Fixes the interval; absent: it is decided."""
    asynchronous: bool = True
    """Whether training goes on while a checkpoint is written."""


class People(Record):
    """Who works on it while it runs."""

    engineers: Number = 0.0
    """Full-time people, parts of one allowed."""
    rate_usd_per_h: UsdPerHour | None = Field(default=None, alias="rate")
    """Cost of one of them."""
    hours_per_week: Annotated[Number, Positive, Field(le=168)] = 40.0


class Logs(Record):
    """Log volume and how long it is kept."""

    per_node_bytes_per_day: BytesPerDay | None = Field(default=None, alias="per_node")
    keep_s: Seconds | None = Field(default=None, alias="keep")


class Overheads(Record):
    """Everything that is paid beside the training itself."""

    experiments: Fraction = 0.0
    """Trial runs and repeats, as a share of the compute of the training tasks."""
    delay_usd_per_day: UsdPerDay | None = Field(default=None, alias="delay")
    """Cost of each day the programme ends after ``deadline`` (after day 0 when there is none)."""
    security_usd_per_month: UsdPerMonth | None = Field(default=None, alias="security")
    operations_usd_per_month: UsdPerMonth | None = Field(default=None, alias="operations")
    metadata_usd_per_month: UsdPerMonth | None = Field(default=None, alias="metadata")
    monitoring_usd_per_node_month: UsdPerMonth | None = Field(default=None, alias="monitoring_per_node")
    cpu_nodes: Nodes = 0
    """CPU machines (login, scheduler, data) that run for the whole programme."""
    cpu_node_usd_per_h: UsdPerHour | None = Field(default=None, alias="cpu_node_price")
    migration_usd: Usd | None = Field(default=None, alias="migration")
    """One-off cost of each cloud used that is not in ``known_clouds``."""
    known_clouds: Names = ()
    """Clouds already in use, where nothing has to be set up."""
    logs: Logs = Logs()


class Assumptions(Record):
    """Overrides of what the product would assume."""

    failure_profile: str | None = None
    """How often nodes fail: a name of the catalogue."""
    spot_profile: str | None = None
    """How spot capacity behaves: a name of the catalogue."""
    throughput_factor: Annotated[Number, Positive] = 1.0
    """Multiplies every predicted throughput."""
    software: str | None = None
    """Software generation the throughput stands for."""
    spares: bool = True
    """Whether warm spare nodes may be chosen."""
    uncertainty: dict[str, str] = Field(
        default={}, examples=[{"throughput_factor": "lognormal(median=1, sigma=0.05)"}]
    )
    """How causes of risk may turn out, by name; for one billing mode or profile after a dot."""


class Case(Record):
    """One planning question."""

    schema_version: Count = SCHEMA_VERSION
    """Version of the case format; leave it out for the newest."""
    name: str = Field(min_length=1, examples=["llama-8b"])
    question: Question = "cheapest"
    """What is wanted within the limits: least expected cost or time, most tokens, or the highest chance."""
    start: IsoDate | None = None
    """ISO date of day 0; needed where dates are given instead of durations."""
    deadline: DateOrDuration | None = None
    """All tasks are done by then. A date is the first moment of that day."""
    budget_usd: Usd | None = Field(default=None, alias="budget")
    """Most that all of it may cost."""
    reliability: Reliability = 0.8
    """Wanted chance of being done in time and in budget."""
    max_lost_work_s: Annotated[Seconds, Positive] | None = Field(default=None, alias="max_lost_work")
    """Most work a failure may throw away."""
    tasks: tuple[Task, ...] = Field(min_length=1)
    resources: Resources = Resources()
    checkpoints: Checkpoints = Checkpoints()
    people: People = People()
    overheads: Overheads = Overheads()
    assumptions: Assumptions = Assumptions()
    labels: dict[str, str] = {}
    """Carried into every cost line, for attribution."""

    _places: Places = PrivateAttr(default_factory=Places)

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if self.schema_version != SCHEMA_VERSION:
            message = f"this version reads cases of schema {SCHEMA_VERSION}, not {self.schema_version}"
            refuse_all(
                "Case", [(("schema_version",), message, "Remove the key, or use a version that knows it.")]
            )
        mistakes = mistakes_of(self.model_dump(by_alias=True))
        refuse_all("Case", [(found.path, found.message, found.fix) for found in mistakes])
        return self

    def canonical(self) -> dict[str, Any]:
        """The case as plain JSON data in canonical units; ``from_canonical`` reads it back."""
        return self.model_dump(mode="json")

    @classmethod
    def from_canonical(cls, data: Mapping[str, Any]) -> Case:
        """The case that ``canonical`` wrote, e.g. ``plan.case``.

        Raises:
            pydantic.ValidationError: the data is not such a case.
        """
        return cls.model_validate(data, context=CANONICAL)

    def placed(self, places: Places) -> Case:
        """The same case, which knows where it was written."""
        case = self.model_copy()
        case._places = places
        return case

    def problem(self, key: str, message: str, fix: str = "") -> Problem:
        """A mistake at a dotted key (``tasks[0].tokens``), with file and line where it came from a file."""
        file, line = self._places.find(path_of(key))
        return Problem(message, key=key, file=file, line=line, fix=fix)

    def task(self, name: str) -> Task:
        """The task of that name.

        Raises:
            KeyError: there is none.
        """
        return {task.name: task for task in self.tasks}[name]

    def model_of(self, task: Task) -> str | Shape | None:
        """The model of a task: its own, or that of the first task it follows; None where no model runs."""
        while task.model is None and task.after:
            task = self.task(task.after[0])
        return task.model

    def seconds_from_start(self, when: DateOrDuration | None) -> float | None:
        """Seconds from day 0 of a date or duration; None stays None.

        Raises:
            InputError: a date was given and the case has no ``start``, or it lies before it.
        """
        return seconds_from_start(when, self.start)

    @property
    def deadline_s(self) -> float | None:
        """The deadline in seconds from day 0."""
        return self.seconds_from_start(self.deadline)

    def release_s(self, task: Task) -> float:
        """Seconds from day 0 before which a task may not begin."""
        return self.seconds_from_start(task.release) or 0.0

    def due_s(self, task: Task) -> float | None:
        """Seconds from day 0 by which a task has to be done: the earlier of its ``due`` and the deadline."""
        limits = [
            limit for limit in (self.seconds_from_start(task.due), self.deadline_s) if limit is not None
        ]
        return min(limits, default=None)
