"""The cost lines in whole cents, added up once for every table that shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from trainplan_models.base import VerificationError
from trainplan_models.costs import CATEGORIES
from trainplan_models.plan import CostLine, Plan

CENT = Decimal("0.01")

CATEGORY_ORDER = tuple(category.name for category in CATEGORIES)


def to_cents(value_usd: float) -> Decimal:
    """An amount in USD rounded to the cent (half to even)."""
    return Decimal(repr(value_usd)).quantize(CENT, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost lines that are not zero, with their amounts in whole cents."""

    lines: tuple[tuple[CostLine, Decimal], ...]
    zero_lines: int
    """Lines that come to less than half a cent and are left out."""
    total_usd: Decimal
    """The sum of the amounts shown, exactly."""
    uncharged: tuple[str, ...]
    """Categories without a line that costs anything."""

    def grouped(self, key: Callable[[CostLine], str]) -> list[tuple[str, Decimal]]:
        """Totals in USD by ``key``, in the order in which the keys first appear."""
        totals: dict[str, Decimal] = {}
        for line, amount in self.lines:
            totals[key(line)] = totals.get(key(line), Decimal(0)) + amount
        return list(totals.items())


def category_rank(category: str) -> tuple[int, str]:
    """Sort key: the order of the report, then unknown categories by name."""
    known = CATEGORY_ORDER.index(category) if category in CATEGORY_ORDER else len(CATEGORY_ORDER)
    return known, category


def bill_of(plan: Plan) -> Bill:
    """Round and add up the cost lines of ``plan``.

    Raises:
        VerificationError: the lines do not add up to the plan's total; half a cent a line is allowed
            for rounding.
    """
    rounded = [(line, to_cents(line.usd)) for line in plan.cost_lines]
    total = sum((amount for _, amount in rounded), Decimal(0))
    allowed = CENT / 2 * (len(rounded) + 1)
    if abs(total - Decimal(repr(plan.total_usd))) > allowed:
        raise VerificationError(
            f"the cost lines add up to {total:,.2f} USD and the plan's total is {plan.total_usd:,.2f} USD"
        )
    charged = [(line, amount) for line, amount in rounded if amount]
    # Sorting is stable: within a category the plan's own order stands.
    charged.sort(key=lambda pair: category_rank(pair[0].category))
    seen = {line.category for line, _ in charged}
    return Bill(
        lines=tuple(charged),
        zero_lines=len(rounded) - len(charged),
        total_usd=total,
        uncharged=tuple(category for category in CATEGORY_ORDER if category not in seen),
    )
