"""The decision in plain numbers: days, nodes and USD, before anything is scaled for the solver.

This is what the optimization model, the brute-force oracle of the tests and the explanation all
read. Nothing in it knows Pyomo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from trainplan.precedence import antichains, fewest_chains, first_antichains, maximal_antichains
from trainplan_models.costs import PRICED

MOST_GROUPS = 200
"""Sets of tasks side by side that are looked at one by one."""

Charges = tuple[tuple[str, float], ...]
"""Amounts by cost category, in USD."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task as the decision sees it; all its rounds together."""

    name: str
    predecessors: tuple[int, ...] = ()
    release_days: float = 0.0
    due_days: float = inf
    scalable: bool = False
    """Whether ``most-tokens`` may stretch its work."""
    tokens: float = 0.0
    """Tokens of the whole task at scale 1."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Nodes of a resource that an option takes beside its own, from its start to its end."""

    resource: int
    nodes: int
    """Working nodes and spares together."""
    daily: Charges
    """USD per calendar day in use, by category, as in ``Option``."""
    accelerator_hours_per_day: float = 0.0


@dataclass(frozen=True, slots=True)
class Option:
    """A way of doing a task: a candidate in a pool under one billing mode, and what it takes of other pools.

    Time is calendar time: goodput, checkpoints and spot waits are already in ``work_days``.
    """

    task: int
    resource: int
    """Index into ``ProblemSpec.resources``."""
    region: int
    """Index into ``ProblemSpec.regions``."""
    nodes: int
    """Working nodes and spares together."""
    work_days: float
    """Calendar days the whole task would take here."""
    setup_days: float
    """Calendar days lost at each start: acquire, load, warm up."""
    daily: Charges
    """USD per calendar day in use, by category; at a price that never changes (see ``ProblemSpec.daily_in``)."""
    once: Charges = ()
    """USD when used at all, by category."""
    accelerator_hours_per_day: float = 0.0
    """What a day draws from a grant, in the grant's unit."""
    cloud: str = ""
    """Clouds not used before cost once, whatever runs there."""
    key: str = ""
    """Stable name; orders columns and ties."""
    groups: tuple[tuple[str, str], ...] = ()
    """What the option is an instance of, e.g. ``("accelerator", "H100-SXM")``."""
    beside: tuple[Beside, ...] = ()
    """Nodes for other roles of the task, in the same region."""
    daily_usd: float = field(init=False, repr=False, compare=False)
    """USD per calendar day in use, of all its nodes."""
    once_usd: float = field(init=False, repr=False, compare=False)
    """USD when used at all."""
    taken: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """(resource, nodes) of each resource it takes nodes of, its own first."""

    def __post_init__(self) -> None:
        usd = sum(usd for _, usd in self.daily)
        nodes = {self.resource: self.nodes}
        for part in self.beside:
            usd += sum(usd for _, usd in part.daily)
            nodes[part.resource] = nodes.get(part.resource, 0) + part.nodes
        object.__setattr__(self, "daily_usd", usd)
        object.__setattr__(self, "taken", tuple(nodes.items()))
        object.__setattr__(self, "once_usd", sum(usd for _, usd in self.once))

    @property
    def all_nodes(self) -> int:
        """Nodes of all resources together."""
        return sum(nodes for _, nodes in self.taken)

    def nodes_of(self, resource: int) -> int:
        """Nodes it takes of a resource."""
        return next((nodes for number, nodes in self.taken if number == resource), 0)

    def hours_of(self, resource: int) -> float:
        """Accelerator-hours that a day draws from a resource that is a grant."""
        own = self.accelerator_hours_per_day if resource == self.resource else 0.0
        return own + sum(p.accelerator_hours_per_day for p in self.beside if p.resource == resource)


@dataclass(frozen=True, slots=True)
class Resource:
    """Nodes of one pool under one billing mode."""

    name: str
    pool: str
    mode: str
    held_nodes: tuple[float, ...]
    """Nodes available in each window without buying anything (``inf`` where nothing limits them)."""
    quota_name: str = ""
    """The case's key for the limit, e.g. ``resources.quotas[aws/us-east-1/p5.48xlarge].spot``."""
    committed: bool = False
    """Whether nodes must be bought first."""
    usd_per_node_day: float = 0.0
    """Price of a committed node, used or not; what is paid by use is in the options."""
    grant_hours: float = inf
    unusable_tail_days: float = 0.0
    """Before the end of a purchase, when nodes are already taken back."""
    latest_start_days: float = inf
    """How far ahead a purchase may begin."""
    most_at_once_nodes: float = inf
    """Most nodes of all its purchases that are there at the same time."""
    frozen: tuple[int, ...] = ()
    """Windows in which nothing runs."""
    price_factor: tuple[float, ...] = ()
    """Price in each window over the one that ``Option.daily`` is stated at; empty where it never changes."""

    def over(self, part_of: Sequence[int]) -> Resource:
        """The resource over other windows, each of them a part of one of its own."""
        return replace(
            self,
            held_nodes=tuple(self.held_nodes[w] for w in part_of),
            frozen=tuple(n for n, w in enumerate(part_of) if w in self.frozen),
            price_factor=tuple(self.price_factor[w] for w in part_of) if self.price_factor else (),
        )


@dataclass(frozen=True, slots=True)
class Product:
    """A length in which nodes of a committed resource are sold.

    Each purchase is so many nodes for one length, from one day on. Of a resource as many are made as its
    products have numbers, or fewer.
    """

    resource: int
    days: float
    usd_per_node: float
    """For the whole length, used or not."""
    most: int
    """Most nodes."""
    upfront_frac: float = 0.0
    first_day: float = 0.0
    last_day: float = inf
    """The first and the last day on which a purchase at this price may begin."""
    purchase: int = 0
    """Which purchase of the resource it would be: 0 for the first to begin, then 1, and so on."""


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """One tier on which the dataset of a task may lie in a region."""

    task: int
    region: int
    tier: str
    usd_per_day: float
    min_days: float
    once_usd: float = 0.0
    """Writing it there."""
    read_usd: float = 0.0
    """Reading it for the whole task; a part of the task reads a part of it."""


@dataclass(frozen=True, slots=True)
class SoftLimit:
    """A limit on nodes or accelerators that the solver may be asked to loosen.

    Only problems made to explain something have them: elsewhere such limits are held by which options exist.
    """

    name: str
    """Key of the limit in the case."""
    upper: float
    unit: str
    amounts: dict[int, float]
    """Option -> what it takes of the limit while it runs."""
    shared: bool = True
    """Whether tasks side by side add up."""
    windows: tuple[int, ...] | None = None
    """Where it holds; everywhere when None."""


Draws = tuple[float, ...]
"""A value in each scenario."""


@dataclass(frozen=True, slots=True)
class Instead:
    """On-demand nodes of the same pool, on which work of an option may be done where spot does not come."""

    days: Draws
    """Calendar days the whole task takes on them."""
    daily_usd: float
    """USD per calendar day in use."""


@dataclass(frozen=True, slots=True)
class Recourse:
    """What may become of the options of a problem, scenario by scenario, and what is promised."""

    weight: Draws
    """Probability of each scenario; they sum to 1."""
    time_factor: dict[int, Draws]
    """Option -> calendar days its work takes, over those planned."""
    usd_factor: dict[int, Draws]
    """Option -> USD a day of it costs, over those planned."""
    wait_days: dict[int, Draws] = field(default_factory=dict)
    """Resource -> from the request for its nodes until they are there; absent is none."""
    instead: dict[int, Instead] = field(default_factory=dict)
    """Option -> what can take over its work."""
    overrun_usd: dict[int, float] = field(default_factory=dict)
    """Committed resource -> USD of a node-day past what was bought."""
    miss_frac: float = 1.0
    """Most probability of scenarios that are late or over budget."""
    miss_usd: float = 0.0
    """Charged for missing in every scenario, in proportion for fewer; what ``safest`` makes small."""


@dataclass(frozen=True, slots=True)
class ProblemSpec:
    """Everything the decision is made from."""

    tasks: tuple[TaskSpec, ...]
    options: tuple[Option, ...]
    resources: tuple[Resource, ...]
    regions: tuple[str, ...]
    windows: tuple[tuple[float, float], ...]
    """Start and end in days from day 0; contiguous."""
    products: tuple[Product, ...] = ()
    datasets: tuple[DatasetChoice, ...] = ()
    staging_usd: dict[tuple[int, int], float] = field(default_factory=dict)
    """(task, region): bringing the dataset there; absent is free."""
    move_usd: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """(task, from region, to region): moving the running task's state; absent is free."""
    handover_usd: dict[tuple[int, int, int, int], float] = field(default_factory=dict)
    """(predecessor, successor, from region, to region): passing the result on; absent is free."""
    programme_daily: Charges = ()
    """USD per day until the programme ends, by category."""
    programme_once: Charges = ()
    cloud_once_usd: dict[str, float] = field(default_factory=dict)
    """Adapting to a cloud; absent is free."""
    delay_usd_per_day: float = 0.0
    delay_after_days: float = inf
    deadline_days: float = inf
    budget_usd: float = inf
    max_nodes: float = inf
    question: str = "cheapest"
    soft_limits: tuple[SoftLimit, ...] = ()
    recourse: Recourse | None = None
    """Where scenarios are looked at."""

    def daily_in(self, option: int, window: int) -> Charges:
        """USD per calendar day in use in a window, by category."""
        found = dict[str, float]()
        parts: tuple[Option | Beside, ...] = (self.options[option], *self.options[option].beside)
        for part in parts:
            factors = self.resources[part.resource].price_factor
            for name, usd in part.daily:
                factor = factors[window] if factors and name in PRICED else 1.0
                found[name] = found.get(name, 0.0) + usd * factor
        return tuple(found.items())

    def daily_usd_in(self, option: int, window: int) -> float:
        """USD per calendar day in use in a window."""
        return sum(usd for _, usd in self.daily_in(option, window))

    def cheapest_daily_usd(self, option: int) -> float:
        """USD per calendar day in use where it costs least."""
        o = self.options[option]
        if not any(self.resources[r].price_factor for r, _ in o.taken):
            return o.daily_usd
        return min(self.daily_usd_in(option, window) for window in range(len(self.windows)))

    @property
    def width(self) -> int:
        """Most tasks that may run at the same time."""
        return len(self.chains)

    @property
    def chains(self) -> tuple[tuple[int, ...], ...]:
        """Fewest chains of the precedence that hold every task once; tasks of a chain never overlap."""
        return fewest_chains([task.predecessors for task in self.tasks])

    @property
    def wide(self) -> bool:
        """Whether there are too many sets of tasks that may run at the same time to look at each."""
        return first_antichains([task.predecessors for task in self.tasks], MOST_GROUPS + 1) is None

    @property
    def parallel_groups(self) -> tuple[tuple[int, ...], ...]:
        """Largest sets of tasks that may run at the same time (maximal antichains of the precedence)."""
        return maximal_antichains([task.predecessors for task in self.tasks])

    @property
    def side_by_side(self) -> tuple[tuple[int, ...], ...]:
        """All sets of tasks that may run at the same time, single tasks included."""
        return antichains([task.predecessors for task in self.tasks])
