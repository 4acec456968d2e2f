"""A case against a catalogue: every name it uses has to be known there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case, Shape
from trainplan_models.case_rules import did_you_mean

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

HELD_MODES = frozenset({"owned", "grant"})
"""Modes of what is already there: allowed by being listed in the case."""


def check_against(case: Case, catalog: Catalog) -> None:
    """Check every name of a case: chips, models, modes, clouds, regions, pools, profiles, recipes, frameworks.

    Raises:
        InputError: with every unknown name, its file and line, and the nearest known one.
    """
    problems = [
        *_chips(case, catalog),
        *_modes(case, catalog),
        *_models(case, catalog),
        *_where(case, catalog),
        *_software(case, catalog),
    ]
    if problems:
        raise InputError(sorted(problems, key=lambda problem: problem.line))


def _unknown(case: Case, key: str, what: str, word: str, known: Iterable[str]) -> Problem:
    fix = did_you_mean(word, sorted(set(known)), "Known") or "`trainplan catalog show` lists them."
    return case.problem(key, f"{word!r} is not a known {what}", fix)


def _chips(case: Case, catalog: Catalog) -> Iterator[Problem]:
    resources = case.resources
    held = [(f"resources.owned[{i}].accelerator", one.accelerator) for i, one in enumerate(resources.owned)]
    held += [
        (f"resources.grants[{i}].accelerator", one.accelerator) for i, one in enumerate(resources.grants)
    ]
    rented = [(f"resources.accelerators[{i}]", chip) for i, chip in enumerate(resources.accelerators)]
    narrowed = [
        (f"tasks[{number}].accelerators[{i}]", chip)
        for number, task in enumerate(case.tasks)
        for i, chip in enumerate(task.accelerators)
    ]
    for key, chip in (*rented, *held, *narrowed):
        if catalog.find_accelerator(chip) is None:
            aliases = (alias for known in catalog.accelerators.values() for alias in known.aliases)
            yield _unknown(case, key, "accelerator", chip, [*catalog.accelerators, *aliases])
    allowed = {known.name for _, chip in (*rented, *held) if (known := catalog.find_accelerator(chip))}
    for key, chip in narrowed if rented else ():
        known = catalog.find_accelerator(chip)
        if known is not None and known.name not in allowed:
            message = f"{chip} is not among resources.accelerators, which the task can only narrow"
            yield case.problem(key, message, "Add it there, or remove it here.")


def _modes(case: Case, catalog: Catalog) -> Iterator[Problem]:
    for index, mode in enumerate(case.resources.billing):
        if mode not in catalog.modes:
            yield _unknown(case, f"resources.billing[{index}]", "billing mode", mode, catalog.modes)
    allowed = {*case.resources.billing, *HELD_MODES}
    for number, task in enumerate(case.tasks):
        for index, mode in enumerate(task.billing):
            key = f"tasks[{number}].billing[{index}]"
            if mode not in catalog.modes:
                yield _unknown(case, key, "billing mode", mode, catalog.modes)
            elif mode not in allowed:
                message = f"{mode} is not among resources.billing, which the task can only narrow"
                yield case.problem(key, message, "Add it there, or remove it here.")


def _models(case: Case, catalog: Catalog) -> Iterator[Problem]:
    for index, task in enumerate(case.tasks):
        model = task.model
        if model is None or isinstance(model, Shape) or model.endswith(".json"):
            continue
        try:
            catalog.model(model)
        except InputError:
            problem = _unknown(case, f"tasks[{index}].model", "model", model, catalog.models)
            own = "Or give the path of its config.json, or write the shape out."
            yield replace(problem, fix=f"{problem.fix} {own}")


def _where(case: Case, catalog: Catalog) -> Iterator[Problem]:
    """Clouds, regions and pools."""
    clouds = {offer.cloud for offer in catalog.offers}
    places = {f"{offer.cloud}/{offer.region}" for offer in catalog.offers}
    pools = {offer.pool for offer in catalog.offers}
    held = {one.name for one in case.resources.owned} | {one.name for one in case.resources.grants}
    named = [(f"resources.clouds[{i}]", cloud) for i, cloud in enumerate(case.resources.clouds)]
    named += [(f"overheads.known_clouds[{i}]", cloud) for i, cloud in enumerate(case.overheads.known_clouds)]
    for key, cloud in named:
        if cloud not in clouds:
            yield _unknown(case, key, "cloud", cloud, clouds)
    yield from _regions(case, catalog)
    for index, quota in enumerate(case.resources.quotas):
        if quota.pool not in pools:
            yield _unknown(case, f"resources.quotas[{index}].pool", "pool", quota.pool, pools)
    for place in case.resources.discounts:
        if place not in clouds | pools:
            key = f"resources.discounts.{place}"
            yield _unknown(case, key, "cloud or pool", place, clouds | (pools if "/" in place else set()))
    for index, task in enumerate(case.tasks):
        if task.dataset is not None and task.dataset.at and task.dataset.at not in places | held:
            key = f"tasks[{index}].dataset.at"
            yield _unknown(case, key, "cloud/region or owned pool", task.dataset.at, places | held)


def _regions(case: Case, catalog: Catalog) -> Iterator[Problem]:
    clouds_of: dict[str, set[str]] = {}
    for offer in catalog.offers:
        clouds_of.setdefault(offer.region, set()).add(offer.cloud)
    for index, region in enumerate(case.resources.regions):
        key, name = f"resources.regions[{index}]", region.rpartition("/")[2]
        if region not in clouds_of and name in clouds_of:
            yield case.problem(key, f"{region!r} names the cloud too", f"Write {name}.")
        elif region not in clouds_of:
            yield _unknown(case, key, "region", region, clouds_of)
        elif case.resources.clouds and not clouds_of[region] & set(case.resources.clouds):
            owners = ", ".join(sorted(clouds_of[region]))
            message = f"{region} is a region of {owners}, which resources.clouds leaves out"
            yield case.problem(key, message, "Add the cloud, or remove the region.")


def _software(case: Case, catalog: Catalog) -> Iterator[Problem]:
    """Optimizer recipes, frameworks, software generations, failure and spot profiles."""
    from trainplan_models.efficiency import optimizers, software_rows
    from trainplan_models.frameworks import AUTO
    from trainplan_models.layout import all_rules

    for index, task in enumerate(case.tasks):
        if task.optimizer not in optimizers():
            yield _unknown(case, f"tasks[{index}].optimizer", "optimizer", task.optimizer, optimizers())
        if task.framework not in (AUTO, *all_rules()):
            yield _unknown(
                case, f"tasks[{index}].framework", "framework", task.framework, (AUTO, *all_rules())
            )
    assumed = case.assumptions
    spot = {profile.name for profile in catalog.spot.values()}
    for key, word, known in (
        ("failure_profile", assumed.failure_profile, set(catalog.failures)),
        ("spot_profile", assumed.spot_profile, spot),
        ("software", assumed.software, set(software_rows())),
    ):
        if word is not None and word not in known:
            yield _unknown(case, f"assumptions.{key}", key.replace("_", " "), word, known)
