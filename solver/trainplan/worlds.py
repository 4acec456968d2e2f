"""What is assumed of failures and of spot, by the names in the case."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import FailureProfile


@dataclass(frozen=True, slots=True)
class World:
    """What is assumed of failures, and where the numbers come from."""

    failures: FailureProfile
    spot_name: str


def world_of(case: Case, catalog: Catalog) -> World:
    """The failure and spot profiles of a case.

    Raises:
        InputError: the case names a profile that is not in the catalogue.
    """
    failures = _known(case.assumptions.failure_profile or "standard", set(catalog.failures), "failure")
    spot_profiles = {profile for profile, _ in catalog.spot}
    spot_name = _known(case.assumptions.spot_profile or "advisor", spot_profiles, "spot")
    return World(catalog.failures[failures], spot_name)


def _known(name: str, names: set[str], what: str) -> str:
    from trainplan_models.base import InputError, Problem

    if name not in names:
        fix = f"Known: {', '.join(sorted(names))}"
        key = f"assumptions.{what}_profile"
        raise InputError(Problem(f"unknown {what} profile {name!r}", key=key, fix=fix))
    return name
