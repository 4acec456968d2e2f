"""What is answered: the plan, the one interchange between the solver and everything after it."""

from __future__ import annotations

from typing import Any, Literal

from trainplan_models.base import Record
from trainplan_models.spot_policy import FallbackRule

SCHEMA_VERSION = 1

Status = Literal["optimal", "feasible", "infeasible"]
Role = Literal["rollout", "scoring", "update"]
"""What nodes of a reinforcement learning task do."""


class Layout(Record):
    """Degrees of parallelism and what goes with them."""

    dp: int
    tp: int = 1
    pp: int = 1
    vp: int = 1
    """Virtual pipeline chunks per stage (1: plain 1F1B)."""
    cp: int = 1
    ep: int = 1
    zero_stage: int = 1
    """0: nothing sharded; 1: optimizer (distributed optimizer); 2: and gradients; 3: and weights (FSDP)."""
    shard_group: int = 0
    """Devices a ZeRO shard spans (hybrid sharding); 0: all of data parallel."""
    micro_batch: int = 1
    """Sequences per micro-batch and device."""
    recompute: Literal["none", "selective", "full"] = "none"
    sequence_parallel: bool = False
    precision: str = "bf16"

    @property
    def accelerators(self) -> int:
        """Devices the layout spans (expert parallelism lies inside data parallelism)."""
        return self.dp * self.tp * self.pp * self.cp


class CheckpointPlan(Record):
    """How one segment saves its state."""

    interval_s: float
    """Useful work between two saves."""
    target: str
    """Storage tier the durable copy goes to."""
    size_bytes: float
    blocking_s: float
    """Training stands still this long per save."""
    persist_s: float
    """Until the save is durable."""
    restart_s: float
    """Detection, replacement, load and warm-up after a failure."""
    mtbf_s: float
    """Mean time between interruptions of the running job, failures and preemptions together."""
    lost_work_s: float
    """Most work a failure can throw away."""


class PriceFrom(Record):
    """A price that holds from a moment on."""

    start_s: float
    usd_per_node_h: float


class BatchPhase(Record):
    """A stretch of a segment with one global batch."""

    tokens: float
    """Trained on in it."""
    global_batch_tokens: float
    tokens_per_s: float
    """While it trains, before failures and checkpoints."""


class Segment(Record):
    """A stretch of time in which one task runs on one candidate under one billing mode."""

    task: str
    roles: tuple[Role, ...] = ()
    """What its nodes do, where others do the rest of the task at the same time; empty: all of it."""
    pool: str
    cloud: str
    region: str
    instance_type: str
    accelerator: str
    accelerators_per_node: int
    nodes: int
    spare_nodes: int = 0
    mode: str
    start_s: float
    end_s: float
    """Calendar time from day 0."""
    setup_s: float = 0.0
    """Part of the stretch spent acquiring, loading and warming up."""
    work_frac: float
    """Share of the task (all its rounds) done here."""
    tokens: float
    tokens_per_s: float
    """While it trains, before failures and checkpoints."""
    goodput_frac: float
    """Useful share of the calendar time after failures, checkpoints and spot waits."""
    paid_frac: float = 1.0
    """Share of the calendar time that is paid for (spot is paid only while up)."""
    expected_frac: float = 1.0
    """Share of the stretch that is expected to be needed, where rounds may not be done; the rest is reserved."""
    mfu_frac: float
    peak_memory_bytes: float
    layout: Layout
    global_batch_tokens: float
    """Tokens per optimizer step; where the batch grows, the largest it reaches in the task."""
    batches: tuple[BatchPhase, ...] = ()
    """The batches it goes through where the batch of its task grows; ``tokens_per_s`` is then that of the task."""
    sequence_length: int
    checkpoint: CheckpointPlan
    usd_per_node_h: float
    """Price while used, the mean where it changes; 0 for what is committed or already owned."""
    prices: tuple[PriceFrom, ...] = ()
    """The prices it is used at, one after the other; empty where there is one."""
    fallback: FallbackRule | None = None
    """What the launcher does when the nodes are taken away; None where they are not."""

    @property
    def leads(self) -> bool:
        """Whether the work, checkpoints and data of its task are its own; else it works for one that does."""
        return not self.roles or "update" in self.roles

    @property
    def on_the_bill(self) -> str:
        """How the bill names the nodes and what they are used under."""
        spares = f" + {self.spare_nodes} spare" if self.spare_nodes else ""
        roles = f" for {' and '.join(self.roles)}" if self.roles else ""
        return f"{self.mode} {self.pool}, {self.nodes}{spares} nodes{roles}"


class Purchase(Record):
    """A commitment to buy."""

    pool: str
    mode: str
    nodes: int
    count: int = 1
    """Purchases of this size."""
    start_s: float
    end_s: float
    usd: float
    """Price of all ``count`` purchases."""
    upfront_usd: float
    used_node_h: float
    bought_node_h: float

    @property
    def unused_frac(self) -> float:
        """Share that is paid for and not used."""
        return 1.0 - self.used_node_h / self.bought_node_h


class Placement(Record):
    """One kind of object on one storage tier."""

    task: str
    pool: str
    what: Literal["dataset", "checkpoints", "milestones", "logs", "second-region copy"]
    tier: str
    size_bytes: float
    held_s: float
    """Calendar time it is billed for."""
    usd: float


class CostLine(Record):
    """One line of the bill: ``quantity * unit_usd == usd`` to the cent."""

    category: str
    task: str
    """Empty for what belongs to the programme as a whole."""
    item: str
    quantity: float
    unit: str
    unit_usd: float
    usd: float
    fixed: bool
    """Owed whether or not the work grows; elastic otherwise."""


class TaskTime(Record):
    """When a task runs."""

    task: str
    start_s: float
    end_s: float


class Trial(Record):
    """A task of which not all rounds need be done."""

    task: str
    rounds: int
    """For which time is reserved: the worst case."""
    expected_rounds_count: float
    all_chance_frac: float
    """Chance that every round is done."""
    none_chance_frac: float
    """Chance that the task is not done at all."""
    expected_usd: float
    """Its lines of the bill."""
    worst_usd: float
    """What they would come to with every round done."""


class LimitUse(Record):
    """How much of a limit of the case the plan uses."""

    limit: str
    """The key in the case, e.g. ``deadline``."""
    used: float
    allowed: float
    unit: str
    binding: bool


class Peak(Record):
    """What is asked of a pool at the busiest moment, against what it offers."""

    what: str
    """Accelerators, storage, checkpoint writes or data reads."""
    pool: str
    """Empty for all pools together."""
    unit: str
    peak: float
    average: float
    """Over the whole programme."""
    at_s: float
    """When the peak is reached first."""
    offered: float | None = None
    """None where nothing limits it."""


class Alternative(Record):
    """The best plan that is forced to use (or may only use) something else."""

    kind: Literal["accelerator", "pool", "billing", "nodes", "layout"]
    name: str
    usd: float | None = None
    finish_s: float | None = None
    reason: str
    """Why it lost, or why it cannot be."""


class AssumedValue(Record):
    """A default, price or model error the result rests on."""

    key: str
    value: str
    source: str
    as_of: str
    effect: str = ""


class Removed(Record):
    """How many configurations one rule took out of consideration."""

    task: str
    rule: str
    count: int


class SolverInfo(Record):
    """What was solved and how well."""

    objective_usd: float
    bound_usd: float
    gap_frac: float
    columns: int
    rows: int
    nodes: int
    seconds: float
    highs_version: str
    scope: str
    """What the bound is a bound over."""


class RiskCause(Record):
    """What makes the outcome uncertain, and how much of the spread it brings."""

    name: str
    finish_share: float
    cost_share: float


class RiskPoint(Record):
    """One plan on the way from cheapest to surest."""

    margin_frac: float
    """Share of the time to the deadline (or of the budget) that the plan leaves free."""
    chance_frac: float
    """Simulated chance of being done in time and in budget."""
    cost_usd: float
    """Cost as planned."""
    finish_s: float
    """Finish as planned."""
    expected_usd: float | None = None
    """Mean of the simulated cost."""
    method: str = ""
    """How it was made: as planned, with a margin, or with scenarios in the model."""


class Risk(Record):
    """What became of the plan in scenarios that the optimization never saw."""

    wanted_frac: float
    """The case's reliability."""
    chance_frac: float
    """Chance of being done in time and in budget."""
    chance_low_frac: float
    """Its lower confidence bound, one-sided 95 %."""
    in_time_frac: float
    in_budget_frac: float
    scenarios_count: int
    seed: int
    finish_p50_s: float
    finish_p90_s: float
    cost_mean_usd: float
    cost_p50_usd: float
    cost_p90_usd: float
    effective_time_frac: float
    """Useful share of the time in which nodes are held (ETTR)."""
    causes: tuple[RiskCause, ...] = ()
    fallback: tuple[str, ...] = ()
    """What to do when a spot segment falls behind, in words a launcher can follow."""
    margin_frac: float = 0.0
    """What was left free of the deadline (or budget) so that the chance holds."""
    tried: tuple[RiskPoint, ...] = ()
    """Plans that were weighed against each other, the cheapest first."""
    method: str = ""
    """How the plan was made: as planned, with a margin, or with scenarios in the model."""


class Method(Record):
    """A way in which a plan was looked for that keeps the wanted chance, with what it found and took."""

    name: str
    plans_count: int
    """Plans that were made and simulated."""
    seconds: float
    chance_frac: float
    """Simulated chance of the best of them."""
    expected_usd: float
    """Mean of its simulated cost."""


class Plan(Record):
    """The answer to a case."""

    schema_version: int = SCHEMA_VERSION
    trainplan_version: str
    name: str
    question: str
    status: Status
    start: str | None = None
    total_usd: float
    """The bill when all goes as planned."""
    expected_usd: float | None = None
    """Mean cost over the simulated launches: what to budget the plan with. Absent where it was not simulated."""
    finish_s: float
    tokens: float
    """Tokens trained over all tasks and rounds, as many as are expected to be done."""
    price_dates: tuple[str, ...]
    segments: tuple[Segment, ...]
    tasks: tuple[TaskTime, ...]
    purchases: tuple[Purchase, ...] = ()
    placements: tuple[Placement, ...] = ()
    cost_lines: tuple[CostLine, ...] = ()
    trials: tuple[Trial, ...] = ()
    """Tasks that may end early or not be done; what the plan costs is the expected cost."""
    worst_usd: float | None = None
    """What the plan costs when every round of these is done; None where there are none."""
    limits: tuple[LimitUse, ...] = ()
    peaks: tuple[Peak, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    removed: tuple[Removed, ...] = ()
    assumptions: tuple[AssumedValue, ...] = ()
    warnings: tuple[str, ...] = ()
    solver: SolverInfo
    labels: dict[str, str] = {}
    risk: Risk | None = None
    """Absent where the plan was not simulated."""
    methods: tuple[Method, ...] = ()
    """Ways in which the wanted chance was sought, where the plan as it was did not have it."""
    case: dict[str, Any]
    """The case as it was understood, in canonical units, so that the plan stands alone."""

    def beside(self, lead: Segment) -> tuple[Segment, ...]:
        """Segments that work for one that leads, at the same time."""
        at = (lead.task, lead.start_s)
        return tuple(s for s in self.segments if lead.roles and not s.leads and (s.task, s.start_s) == at)
