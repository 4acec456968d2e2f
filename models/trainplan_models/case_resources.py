"""The resources of a case: what may be rented, what is there already, and how much of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from trainplan_models.base import Record
from trainplan_models.places import Path
from trainplan_models.units import (
    Accelerators,
    Bytes,
    BytesPerS,
    DateOrDuration,
    Fraction,
    GrantUnits,
    Names,
    Nodes,
    Number,
    Positive,
    PositiveCount,
    UsdPerHour,
    UsdPerKwh,
    mistake,
    reads_as,
    refuse_all,
)

POOL_PATTERN = r"^[^/\s]+/[^/\s]+/[^/\s]+$"


class Quota(Record):
    """The most nodes of a pool by quota key; keys absent are not limited."""

    pool: str = Field(pattern=POOL_PATTERN, examples=["aws/us-east-1/p5.48xlarge"])
    """``cloud/region/instance_type``."""
    on_demand: Nodes | None = Field(default=None, alias="on-demand")
    spot: Nodes | None = None
    reserved: Nodes | None = None
    capacity_block: Nodes | None = Field(default=None, alias="capacity-block")

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        limits = (self.on_demand, self.spot, self.reserved, self.capacity_block)
        if all(limit is None for limit in limits):
            refuse_all(
                "Quota", [((), f"the quota of {self.pool} limits nothing", "Add `on-demand: 8 nodes`.")]
            )
        return self


class Free(Record):
    """From when on how many owned nodes are free; holds until the next entry."""

    since: DateOrDuration = Field(alias="from")
    nodes: Nodes


class Freeze(Record):
    """A time in which nothing runs: maintenance, a holiday, a stop to all changes."""

    since: DateOrDuration = Field(alias="from")
    until: DateOrDuration = Field(alias="to")
    """The first moment at which work goes on."""
    pools: Names = ()
    """Where; empty: everywhere. A pool, a cloud, or an owned cluster or grant."""

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if type(self.since) is type(self.until) and self.until <= self.since:  # type: ignore[operator]
            refuse_all("Freeze", [(("to",), "the freeze ends before it begins", "Write `to` after `from`.")])
        return self


class PriceChange(Record):
    """What nodes cost from a date on, or until one: a published cut, a contract or a discount that ends.

    Several at one time follow each other in the order they are written in. A purchase is paid at the price
    of the day it begins.
    """

    since: DateOrDuration | None = Field(default=None, alias="from")
    """Absent: from day 0."""
    until: DateOrDuration | None = Field(default=None, alias="to")
    """The first moment at which the old price holds again; absent: never."""
    pools: Names = ()
    """Where; empty: everything that is rented. A pool, a cloud, ``cloud/region``, or an owned cluster."""
    billing: Names = ()
    """Under which billing modes; empty: under all."""
    cut_frac: Annotated[Fraction, Positive] | None = Field(default=None, alias="cut")
    """Share off the price, like 20%."""
    rise_frac: Annotated[Fraction, Positive] | None = Field(default=None, alias="rise")
    """Share put on the price, like 15%."""
    usd_per_node_h: Annotated[UsdPerHour, Positive] | None = Field(default=None, alias="price")
    """The price of a node-hour itself, after any discount."""

    @model_validator(mode="after")
    def _changes_a_price(self) -> Self:
        told = [key for key in ("cut_frac", "rise_frac", "usd_per_node_h") if getattr(self, key) is not None]
        wrong: list[tuple[Path, str, str]] = []
        if len(told) != 1:
            message = "a price change says one of `cut`, `rise` and `price`"
            wrong.append(((), message, "Write `cut: 20%`, `rise: 15%`, or `price: 40 USD/hour` of a node."))
        if self.since is None and self.until is None:
            message = "this price holds all the time, which is no change"
            wrong.append(((), message, "Add `from: day 20` or `to: day 20`, or use `discounts`."))
        if self.cut_frac is not None and self.cut_frac >= 1:
            wrong.append((("cut",), f"{self.cut_frac:.0%} off leaves no price", "Write a share below 100%."))
        if self.usd_per_node_h is not None and not self.pools:
            message = "one price cannot hold for every machine there is"
            wrong.append(
                (("price",), message, "Name the pools it is for: `pools: [aws/us-east-1/p5.48xlarge]`.")
            )
        since, until = self.since or 0.0, self.until
        if until is not None and type(since) is type(until) and until <= since:  # type: ignore[operator]
            wrong.append((("to",), "the price ends before it begins", "Write `to` after `from`."))
        refuse_all("PriceChange", wrong)
        return self

    def applied(self, usd_per_node_h: float) -> float:
        """The price while the change holds, from the one without it."""
        if self.usd_per_node_h is not None:
            return self.usd_per_node_h
        return usd_per_node_h * (1.0 - (self.cut_frac or 0.0)) * (1.0 + (self.rise_frac or 0.0))


class Owned(Record):
    """A cluster already there. Its capital cost is sunk unless ``usd_per_node_h`` says otherwise."""

    name: str = Field(min_length=1)
    accelerator: str = Field(min_length=1)
    nodes: Annotated[Nodes, Positive]
    accelerators_per_node: PositiveCount = 8
    free: tuple[Free, ...] = ()
    electricity_usd_per_kwh: UsdPerKwh | None = Field(default=None, alias="electricity")
    pue: Annotated[Number, Field(ge=1)] | None = None
    """Power of the whole site over power of the machines."""
    node_usd_per_h: UsdPerHour | None = Field(default=None, alias="node_price")
    """Full cost charged inside the company per node; absent: only electricity is a cost."""
    network: Annotated[BytesPerS, Positive] | None = None
    """Scale-out bandwidth per accelerator."""
    storage_free_bytes: Bytes | None = Field(default=None, alias="storage_free")
    queue_hours_per_day: Annotated[Number, Positive, Field(le=24)] = 24.0
    """Hours in every 24 in which the nodes can be used."""

    @model_validator(mode="after")
    def _free_is_owned(self) -> Self:
        wrong: list[tuple[Path, str, str]] = [
            (
                ("free", index, "nodes"),
                f"{entry.nodes} nodes cannot be free of {self.nodes}",
                "Write at most that.",
            )
            for index, entry in enumerate(self.free)
            if entry.nodes > self.nodes
        ]
        times = [entry.since for entry in self.free if isinstance(entry.since, float)]
        if len(times) == len(self.free) and any(b <= a for a, b in pairwise(times)):
            wrong.append(
                (("free",), "the times of `free` do not rise", "Write the entries in order of time.")
            )
        refuse_all("Owned", wrong)
        return self


def _grant_hours(value: object, info: ValidationInfo) -> object:
    """Node-hours, core-hours and other units need their rate."""
    own_unit = (
        isinstance(value, str) and reads_as(value, "grant_units") and not reads_as(value, "accelerator_h")
    )
    if own_unit and info.data.get("units_per_accelerator_hour") == 1.0:
        message = f"{value!r} is in a unit of the grant, and what an accelerator-hour takes is not said"
        fix = "Add `units_per_accelerator_hour: 0.125` (node-hours of 8 GPUs), or write GPU-hours."
        raise mistake(message, fix)
    return value


class Grant(Record):
    """Accelerator-hours allotted on a machine."""

    name: str = Field(min_length=1)
    accelerator: str = Field(min_length=1)
    nodes: Annotated[Nodes, Positive]
    accelerators_per_node: PositiveCount = 8
    units_per_accelerator_hour: Annotated[Number, Positive] = 1.0
    """What an accelerator-hour takes off ``hours``: 0.125 where node-hours of 8 accelerators are counted."""
    hours: Annotated[GrantUnits, Positive, BeforeValidator(_grant_hours)]
    """Hours allotted, in the grant's own unit."""
    expires: DateOrDuration | None = None
    network: Annotated[BytesPerS, Positive] | None = None
    """Scale-out bandwidth per accelerator."""


class Resources(Record):
    """What may be used."""

    accelerators: Names = ()
    """Allowed chips; empty: every one with an offer."""
    clouds: Names = ()
    """Allowed clouds; empty: every one."""
    regions: Names = ()
    """Allowed regions, by the name their cloud gives them; empty: every one."""
    billing: Names = ("on-demand", "spot")
    """Allowed billing modes for what is rented; `owned` and `grant`, where the case lists such, go without saying."""
    max_nodes: Annotated[Nodes, Positive] | None = None
    """Most nodes at any time, over all tasks."""
    max_accelerators: Annotated[Accelerators, Positive] | None = None
    quotas: tuple[Quota, ...] = ()
    owned: tuple[Owned, ...] = ()
    grants: tuple[Grant, ...] = ()
    freezes: tuple[Freeze, ...] = ()
    """When nothing runs. What was bought is paid all the same."""
    price_changes: tuple[PriceChange, ...] = ()
    """What changes prices at a date."""
    discounts: dict[str, Fraction] = {}
    """Private discount by cloud or pool: ``{aws: 12%}`` off every rented price."""
    node_counts: tuple[Annotated[Nodes, Positive], ...] = ()
    """Only these node counts; empty: every legal one up to ``max_nodes``."""

    @model_validator(mode="after")
    def _discounts_leave_a_price(self) -> Self:
        wrong = [
            (("discounts", place), f"{share:.0%} off leaves no price", "Write a share below 100%, like 12%.")
            for place, share in self.discounts.items()
            if share >= 1
        ]
        refuse_all("Resources", wrong)
        return self
