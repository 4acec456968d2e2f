"""Pyomo, without what it would load beside it.

When Pyomo first meets scipy it imports scipy's statistics, integration and geometry as well, which takes
longer than all the rest of a small plan. None of it is used here.
"""

from __future__ import annotations

import contextlib

import pyomo.common.dependencies as dependencies

with contextlib.suppress(AttributeError):
    dependencies.scipy_available._callback = None

from pyomo.core import (  # noqa: E402
    Binary,
    ConcreteModel,
    Constraint,
    ConstraintList,
    NonNegativeIntegers,
    NonNegativeReals,
    Objective,
    Reals,
    UnitInterval,
    Var,
    VarList,
    is_potentially_variable,
    minimize,
)
from pyomo.repn import generate_standard_repn  # noqa: E402
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler  # noqa: E402

__all__ = [
    "Binary",
    "ConcreteModel",
    "Constraint",
    "ConstraintList",
    "LinearStandardFormCompiler",
    "NonNegativeIntegers",
    "NonNegativeReals",
    "Objective",
    "Reals",
    "UnitInterval",
    "Var",
    "VarList",
    "generate_standard_repn",
    "is_potentially_variable",
    "minimize",
]
