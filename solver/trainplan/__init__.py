"""Plan the training of models: the cheapest way to be done by a date, and how sure that is.

>>> import trainplan
>>> case = trainplan.load_case("cases/llama-8b-300b.yaml")   # doctest: +SKIP
>>> plan = trainplan.plan(case)                              # doctest: +SKIP
>>> plan.total_usd                                           # doctest: +SKIP

Everything here is imported when it is first used: ``import trainplan`` costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan._version import __version__

if TYPE_CHECKING:
    from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, TrainplanError
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog
    from trainplan_models.plan import Plan

__all__ = [
    "Case",
    "InfeasibleError",
    "InputError",
    "NoAnswerError",
    "Plan",
    "TrainplanError",
    "__version__",
    "load_case",
    "plan",
]

_HOMES = {
    "Case": "trainplan_models.case",
    "InfeasibleError": "trainplan_models.base",
    "InputError": "trainplan_models.base",
    "NoAnswerError": "trainplan_models.base",
    "Plan": "trainplan_models.plan",
    "TrainplanError": "trainplan_models.base",
}


def load_case(path: str | Path, overrides: Sequence[str] = ()) -> Case:
    """Read and validate a case.

    Args:
        path: a YAML file.
        overrides: ``key=value`` pairs laid over the file, e.g. ``deadline=20 days`` or
            ``tasks.pretrain.tokens=1T tokens``.

    Raises:
        InputError: with every mistake of the file.
    """
    from trainplan_models.casefile import load_case as read

    return read(path, overrides)


def plan(
    case: Case,
    catalog: Catalog | None = None,
    *,
    time_limit_s: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Answer a case: choose, verify and describe the best plan.

    Args:
        case: what is asked.
        catalog: accelerators, prices and the rest; None for the one that is built in.
        time_limit_s: wall-clock seconds for the solver.
        progress: called with a line of text now and then.

    Raises:
        InputError: the case asks for what the catalogue does not have.
        InfeasibleError: no plan satisfies the case; says which limits are to blame.
        NoAnswerError: no plan was found in the time limit.
    """
    from trainplan.planning import plan as decide
    from trainplan_models.catalog import builtin

    return decide(case, catalog or builtin(), time_limit_s=time_limit_s, progress=progress)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
