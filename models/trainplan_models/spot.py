"""Spot capacity: how often a gang is lost, how much of the time it is up, and what that is worth.

A gang alternates between up (until one of its nodes is taken) and down (until all are back). It is paid
for while it is up. Named profiles stand for different worlds and are never averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import SpotProfile
from trainplan_models.reliability import HOUR_S, MTBF_CEILING_S, preemption_rate_per_s

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SpotShares:
    """What a stretch of calendar time on spot is worth; arrays by candidate."""

    paid_frac: FloatArray
    """Share of calendar time in which the gang is up and paid for."""
    useful_frac: FloatArray
    """Share of calendar time that is useful work."""


def gang_loss_per_s(nodes: ArrayLike, spot: SpotProfile) -> FloatArray:
    """Rate at which a gang of ``nodes`` is broken while it is up."""
    return preemption_rate_per_s(nodes, spot)


def gang_up_s(nodes: ArrayLike, spot: SpotProfile) -> FloatArray:
    """Mean time a gang stays whole."""
    return 1.0 / np.maximum(gang_loss_per_s(nodes, spot), 1.0 / MTBF_CEILING_S)


def availability_frac(nodes: ArrayLike, spot: SpotProfile) -> FloatArray:
    """Share of the time the whole gang is up: mean up over mean up and mean wait (alternating renewal)."""
    up_s = gang_up_s(nodes, spot)
    return np.asarray(up_s / (up_s + spot.reacquire_s))


def gang_survival_frac(nodes: ArrayLike, hours: ArrayLike, spot: SpotProfile) -> FloatArray:
    """Chance that a gang stays whole for ``hours``."""
    return np.asarray(np.exp(-gang_loss_per_s(nodes, spot) * np.asarray(hours, float) * HOUR_S))


def shares(nodes: ArrayLike, spot: SpotProfile, efficiency_frac: ArrayLike) -> SpotShares:
    """Paid and useful share of calendar time.

    Args:
        nodes: gang sizes.
        spot: how the pool behaves.
        efficiency_frac: useful share of the time the gang is up, at the job's MTBF with preemptions in it
            (``reliability.job_mtbf_s(nodes, profile, spot)``).
    """
    up = availability_frac(nodes, spot)
    return SpotShares(paid_frac=up, useful_frac=np.asarray(up * np.asarray(efficiency_frac, float)))


def usd_per_useful_h(
    spot_usd_per_h: ArrayLike,
    fallback_usd_per_h: ArrayLike,
    availability: ArrayLike,
    efficiency_frac: ArrayLike,
) -> FloatArray:
    """Price of an hour of useful work when a fallback runs at the same efficiency while spot is away."""
    up = np.asarray(availability, float)
    mixed = up * np.asarray(spot_usd_per_h, float) + (1.0 - up) * np.asarray(fallback_usd_per_h, float)
    return np.asarray(mixed / np.asarray(efficiency_frac, float))


def profile_for(
    catalog: Catalog, cloud: str, region: str, instance_type: str, name: str = "advisor"
) -> SpotProfile:
    """The row of profile ``name`` that a pool follows: that of its published band, else the whole profile.

    Where the provider publishes no band and the profile has rows by band only, the worst of them stands.

    Raises:
        InputError: there is no such profile.
    """
    rows = {band: row for (known, band), row in catalog.spot.items() if known == name}
    if not rows:
        names = ", ".join(sorted({known for known, _ in catalog.spot}))
        raise InputError(Problem(f"unknown spot profile {name!r}", fix=f"Known: {names}"))
    place = (cloud, region, instance_type)
    band = next((b.band for b in catalog.spot_bands if (b.cloud, b.region, b.instance_type) == place), "")
    return rows.get(band) or rows.get("") or max(rows.values(), key=lambda row: row.preemptions_per_node_h)
