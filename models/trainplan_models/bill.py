"""The sheet that the lines of a bill are written on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainplan_models import costs, network
from trainplan_models.base import InputError, Problem
from trainplan_models.plan import CostLine, Plan, Segment

if TYPE_CHECKING:
    from trainplan_models.case import Case, Owned, Task
    from trainplan_models.catalog import Catalog, Pool


@dataclass(slots=True)
class Bill:
    """A bill in the making, with what is looked up for it."""

    plan: Plan
    case: Case
    catalog: Catalog
    pools: Mapping[str, Pool]
    """``catalog.pools()``."""
    lines: list[CostLine] = field(default_factory=list)

    def add(
        self,
        category: str,
        task: str,
        item: str,
        quantity: float,
        unit: str,
        unit_usd: float,
        *,
        fixed: bool | None = None,
        keep: bool = False,
    ) -> None:
        """Add a line, rounded to the cent; one that comes to nothing is left out unless ``keep``."""
        usd = round(quantity * unit_usd, 2)
        if usd == 0.0 and not (keep and quantity > 0):
            return
        self.lines.append(
            CostLine(
                category=category,
                task=task,
                item=item,
                quantity=quantity,
                unit=unit,
                unit_usd=unit_usd,
                usd=usd,
                fixed=costs.FIXED[category] if fixed is None else fixed,
            )
        )

    def task(self, name: str) -> Task:
        """The task of that name.

        Raises:
            InputError: the case has no such task.
        """
        for task in self.case.tasks:
            if task.name == name:
                return task
        raise InputError(Problem(f"the plan has a task {name!r} that the case has not", key="segments.task"))

    def paid(self, mode: str) -> str:
        """How a billing mode is paid."""
        return self.catalog.modes[mode].paid

    def owned(self, segment: Segment) -> Owned | None:
        """The owned cluster a segment runs on; None when it does not."""
        names = (segment.pool, segment.cloud)
        return next((owned for owned in self.case.resources.owned if owned.name in names), None)

    def place(self, segment: Segment) -> network.Place:
        """Where a segment runs."""
        return network.pool_place(segment.pool, segment.cloud, segment.region, self.case)
