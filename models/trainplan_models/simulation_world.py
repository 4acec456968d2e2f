"""What a plan is held against: how failures and spot behave, and how the causes it shares turn out.

``World`` has the rates, ``Scenarios`` one draw a row of every common cause: how fast it really runs, how often
it fails, when capacity comes, how spot behaves, how much work is redone. ``Distribution`` is one row of
``catalog/uncertainty.csv`` (or of the case) as something that can be drawn from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.reading import Table, read_table
from trainplan_models.catalog.records import FailureProfile, SpotProfile, Uncertainty
from trainplan_models.plan import Plan

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog

FloatArray = NDArray[np.float64]

ANY = "*"
DENSE, MOE = "dense", "moe"
NEEDED: Mapping[str, tuple[str, ...]] = {
    "constant": ("value",),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
    "triangular": ("low", "mode", "high"),
    "delayed": ("chance", "median", "sigma"),
    "quantiles": (),
}
"""Parameters by distribution. ``delayed`` is 0 but for a ``chance``, then lognormal; ``quantiles`` takes pairs of
a probability and a value, straight lines between them."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A cause as a distribution."""

    kind: str
    parameters: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.parameters[name]

    def draw(self, normal: FloatArray, scale: float = 1.0) -> FloatArray:
        """Values for standard normal draws.

        Args:
            normal: one draw each; correlated where the causes are.
            scale: multiplies the spread on the logarithmic (``normal``: the plain) scale.
        """
        from scipy.special import ndtr, ndtri

        if self.kind == "constant":
            return np.full(normal.shape, self["value"])
        if self.kind == "normal":
            return np.asarray(self["mean"] + scale * self["sd"] * normal)
        if self.kind == "lognormal":
            return np.asarray(self["median"] * np.exp(scale * self["sigma"] * normal))
        share = ndtr(normal)
        if self.kind == "delayed":
            late = share > 1.0 - self["chance"]
            within = (share - (1.0 - self["chance"])) / max(self["chance"], 1e-12)
            tail = ndtri(np.clip(within, 1e-9, 1.0 - 1e-9))
            return np.where(late, self["median"] * np.exp(self["sigma"] * tail), 0.0)
        if self.kind == "quantiles":
            points = sorted((float(name), value) for name, value in self.parameters.items())
            return np.asarray(np.interp(share, [at for at, _ in points], [value for _, value in points]))
        low, mode, high = self["low"], self["mode"], self["high"]
        rise = np.sqrt(share * (high - low) * (mode - low))
        fall = np.sqrt((1.0 - share) * (high - low) * (high - mode))
        return np.asarray(np.where(share * (high - low) < mode - low, low + rise, high - fall))


def distribution(kind: str, parameters: tuple[str, ...], key: str = "") -> Distribution:
    """A distribution from its name and ``name=value`` texts.

    Raises:
        InputError: an unknown name, a parameter missing or not a number.
    """
    if kind not in NEEDED:
        raise InputError(
            Problem(f"unknown distribution {kind!r}", key=key, fix=f"Known: {', '.join(NEEDED)}")
        )
    found: dict[str, float] = {}
    for text in parameters:
        name, _, value = text.partition("=")
        try:
            found[name.strip()] = float(value)
            if kind == "quantiles" and not 0.0 <= float(name) <= 1.0:
                raise ValueError
        except ValueError:
            raise InputError(Problem(f"{text!r} is not name=number", key=key)) from None
    missing = [name for name in NEEDED[kind] if name not in found]
    if missing or not found or not np.all(np.isfinite(list(found.values()))):
        needs = ", ".join(NEEDED[kind]) or "pairs of a probability and a value, as 0.5=0.01"
        raise InputError(Problem(f"{kind} needs {needs}", key=key))
    return Distribution(kind, found)


@lru_cache(maxsize=1)
def uncertainty_rows() -> tuple[Uncertainty, ...]:
    """The shipped rows of ``catalog/uncertainty.csv``."""
    sheet = read_table(
        Table("uncertainty", Uncertainty, ("what", "applies_to")), files("trainplan_models.catalog")
    )
    return () if sheet is None else tuple(sheet.rows)


class Uncertainties:
    """The rows by cause and by what they apply to, those of the case first."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        """Args:
        own: from the case: ``{"throughput_factor": "lognormal(median=1, sigma=0.05)"}``; a key may name what it
            applies to after a dot, as in ``capacity_delay_s.spot``.

        Raises:
            InputError: an unknown cause or distribution.
        """
        self._rows: dict[tuple[str, str], Distribution] = {}
        for row in uncertainty_rows():
            key = (row.what, row.applies_to)
            self._rows[key] = distribution(row.distribution, row.parameters, ".".join(key))
        known = sorted({what for what, _ in self._rows} | {"throughput_factor"})
        for name, text in (own or {}).items():
            what, _, applies_to = name.partition(".")
            place = f"assumptions.uncertainty.{name}"
            if what not in known:
                raise InputError(
                    Problem(f"unknown cause {what!r}", key=place, fix=f"Known: {', '.join(known)}")
                )
            kind, _, rest = text.strip().removesuffix(")").partition("(")
            parts = tuple(part.strip() for part in rest.split(",") if part.strip())
            if not applies_to:
                self._rows = {row: dist for row, dist in self._rows.items() if row[0] != what}
            self._rows[what, applies_to or ANY] = distribution(kind.strip(), parts, place)

    def find(self, what: str, applies_to: str = ANY) -> Distribution | None:
        """The row of a cause for something, else for anything."""
        return self._rows.get((what, applies_to)) or self._rows.get((what, ANY))

    def of(self, what: str, applies_to: str = ANY) -> Distribution:
        """As ``find``.

        Raises:
            InputError: no such row.
        """
        row = self.find(what, applies_to)
        if row is None:
            raise InputError(Problem(f"no row of {what} applies to {applies_to}", file="uncertainty.csv"))
        return row

    def value(self, what: str, applies_to: str = ANY) -> float:
        """The middle of a distribution: the value of a constant."""
        return float(self.of(what, applies_to).draw(np.zeros(1))[0])


@dataclass(frozen=True, slots=True)
class World:
    """Rates that hold in the middle of all scenarios."""

    failures: FailureProfile
    spot: Mapping[str, SpotProfile]
    """By pool."""
    hang_frac: float
    """Hangs among soft failures."""
    recovery_spread_factor: float
    """Standard deviation of the logarithm of a single recovery."""
    spot_up_shape_factor: float
    """Weibull shape of the time a gang stays up."""
    spot_down_shape_factor: float


def world_of(plan: Plan, case: Case, catalog: Catalog) -> World:
    """The world a case assumes, for the pools of a plan.

    Raises:
        InputError: the case names a profile that the catalogue has not.
    """
    from trainplan_models.spot import profile_for

    known = Uncertainties(case.assumptions.uncertainty)
    name = case.assumptions.failure_profile or "standard"
    if name not in catalog.failures:
        raise InputError(Problem(f"unknown failure profile {name!r}", key="assumptions.failure_profile"))
    spot_name = case.assumptions.spot_profile or "advisor"
    pools = {
        s.pool: profile_for(catalog, s.cloud, s.region, s.instance_type, spot_name)
        for s in plan.segments
        if catalog.modes[s.mode].preemptible
    }
    return World(
        failures=catalog.failures[name],
        spot=pools,
        hang_frac=known.value("hang_frac", name),
        recovery_spread_factor=known.value("recovery_spread", name),
        spot_up_shape_factor=known.value("spot_up_shape", spot_name),
        spot_down_shape_factor=known.value("spot_down_shape", spot_name),
    )


def gang_up_s(nodes: int, profile: SpotProfile) -> float:
    """Mean time a gang of nodes stays whole, as ``SpotProfile.gang_correlation`` defines it."""
    per_h = profile.preemptions_per_node_h * float(nodes) ** (1.0 - profile.gang_correlation)
    return float(3600.0 / max(per_h, 1e-12))


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Joint draws of the common causes; every array has one value a scenario."""

    weight: FloatArray
    """Probability of each scenario; sums to 1."""
    throughput_factor: Mapping[tuple[str, str], FloatArray]
    """Real over predicted throughput, by accelerator generation and kind of model (dense, moe)."""
    failure_factor: FloatArray
    """On the failure rate of nodes."""
    soft_failure_factor: FloatArray
    """On the rate of failures that no node causes."""
    hang_s: FloatArray
    """Until a hang is noticed."""
    recovery_factor: FloatArray
    """On the time to recover."""
    capacity_delay_s: Mapping[tuple[str, str], FloatArray]
    """From the request for nodes to having them, by pool and billing mode."""
    spot_hazard_factor: Mapping[str, FloatArray]
    """On the rate at which spot is lost, by pool."""
    spot_wait_factor: Mapping[str, FloatArray]
    """On the time until spot is back, by pool."""
    spot_price_factor: Mapping[str, FloatArray]
    """On the spot price over the programme, by pool."""
    redone_frac: FloatArray
    """Share of the work that is done again."""
    experiments_factor: FloatArray
    """On the cost of experiments."""

    @property
    def count(self) -> int:
        """Number of scenarios."""
        return self.weight.size

    def take(self, index: NDArray[np.int64], weight: FloatArray) -> Scenarios:
        """Some of the scenarios with new weights."""

        def part(values: Mapping[tuple[str, str], FloatArray]) -> dict[tuple[str, str], FloatArray]:
            return {key: value[index] for key, value in values.items()}

        def by_pool(values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
            return {key: value[index] for key, value in values.items()}

        return Scenarios(
            weight=weight,
            throughput_factor=part(self.throughput_factor),
            failure_factor=self.failure_factor[index],
            soft_failure_factor=self.soft_failure_factor[index],
            hang_s=self.hang_s[index],
            recovery_factor=self.recovery_factor[index],
            capacity_delay_s=part(self.capacity_delay_s),
            spot_hazard_factor=by_pool(self.spot_hazard_factor),
            spot_wait_factor=by_pool(self.spot_wait_factor),
            spot_price_factor=by_pool(self.spot_price_factor),
            redone_frac=self.redone_frac[index],
            experiments_factor=self.experiments_factor[index],
        )

    def causes(self) -> dict[str, list[FloatArray]]:
        """The draws by cause, as the report names them; constant ones left out."""
        groups: dict[str, list[FloatArray]] = {
            "throughput": list(self.throughput_factor.values()),
            "node failures": [self.failure_factor],
            "soft failures and hangs": [self.soft_failure_factor, self.hang_s],
            "recovery time": [self.recovery_factor],
            "capacity delay": list(self.capacity_delay_s.values()),
            "spot capacity": [*self.spot_hazard_factor.values(), *self.spot_wait_factor.values()],
            "spot price": list(self.spot_price_factor.values()),
            "redone work": [self.redone_frac],
            "experiments": [self.experiments_factor],
        }
        varied = {name: [draw for draw in draws if np.ptp(draw) > 0.0] for name, draws in groups.items()}
        return {name: draws for name, draws in varied.items() if draws}


def certain(count: int) -> Scenarios:
    """Scenarios in which everything turns out as planned, for tests and for chance alone."""
    ones, zeros = np.ones(count), np.zeros(count)
    return Scenarios(np.full(count, 1.0 / count), {}, ones, ones, zeros, ones, {}, {}, {}, {}, zeros, ones)
