"""The sheet that the lines of a bill are written on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainplan_models import costs, network
from trainplan_models.base import InputError, Problem
from trainplan_models.plan import CostLine, Plan, Segment

if TYPE_CHECKING:
    from trainplan_models.case import Case, Owned, Task
    from trainplan_models.catalog import Catalog, Pool


_Key = tuple[str, str, str, str, float, bool]
"""Category, task, item, unit, price and whether it is fixed: what makes two amounts one line."""


@dataclass(slots=True)
class Bill:
    """A bill in the making, with what is looked up for it."""

    plan: Plan
    case: Case
    catalog: Catalog
    pools: Mapping[str, Pool]
    """``catalog.pools()``."""
    not_shared_usd: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By task, what is above the unchanged price in purchases; experiments are a share of compute without it."""
    _quantities: dict[_Key, float] = field(default_factory=dict)
    _kept: set[_Key] = field(default_factory=set)

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
        """Add to the line of this item at this price; one that comes to nothing is left out unless ``keep``."""
        key = (category, task, item, unit, unit_usd, costs.FIXED[category] if fixed is None else fixed)
        self._quantities[key] = self._quantities.get(key, 0.0) + quantity
        if keep:
            self._kept.add(key)

    @property
    def lines(self) -> list[CostLine]:
        """The lines so far, each rounded to the cent."""
        found = []
        for key, quantity in self._quantities.items():
            category, task, item, unit, unit_usd, fixed = key
            usd = round(quantity * unit_usd, 2)
            if usd == 0.0 and not (key in self._kept and quantity > 0):
                continue
            found.append(
                CostLine(
                    category=category,
                    task=task,
                    item=item,
                    quantity=quantity,
                    unit=unit,
                    unit_usd=unit_usd,
                    usd=usd,
                    fixed=fixed,
                )
            )
        return found

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
