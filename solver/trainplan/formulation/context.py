"""What the blocks share: the model, the one ledger for money and the one list of limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainplan.inputs import Inputs
from trainplan.pyomo_core import ConcreteModel, ConstraintList, VarList


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry of the ledger."""

    category: str
    task: int | None
    fixed: bool
    amount: Any
    """Pyomo expression in solver money units."""
    planned: bool = True
    """Whether it is on the bill when all goes as planned; else it is what scenarios add to that on average."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of the case; ``slack`` is the variable that may loosen it."""

    name: str
    slack: str
    unit: str
    upper: float
    per_unit: float
    """Case units in one solver unit of the slack."""


@dataclass(slots=True)
class Context:
    """The model under construction."""

    inputs: Inputs
    m: ConcreteModel = field(default_factory=ConcreteModel)
    ledger: list[Charge] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    _slacks: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.m.v_over = VarList()
        self.m.c_limit = ConstraintList()

    def charge(
        self, category: str, task: int | None, amount: Any, *, fixed: bool = False, planned: bool = True
    ) -> None:
        """Enters money into the ledger; objective, budget and attribution all read it from there."""
        self.ledger.append(Charge(category, task, fixed, amount, planned))

    def limit(self, name: str, body: Any, upper: float, *, unit: str, per_unit: float) -> None:
        """Adds ``body <= upper + slack`` with the slack fixed at 0 until somebody frees it.

        Args:
            name: key of the limit in the case; several rows may share one name and one slack.
            body: Pyomo expression in solver units.
            upper: the limit in solver units.
            unit: unit of the limit in the case.
            per_unit: case units in one solver unit.
        """
        slack = self._slacks.get(name)
        if slack is None:
            slack = self._slacks[name] = self.m.v_over.add()
            slack.setlb(0.0)
            slack.setub(0.0)
            self.limits.append(Limit(name, slack.name, unit, upper, per_unit))
        self.m.c_limit.add(body - slack <= upper)

    def total(self, charges: Iterable[Charge] | None = None) -> Any:
        """Sum of the ledger, or of some of its entries."""
        return sum(charge.amount for charge in (self.ledger if charges is None else charges))
