"""What is known of the world: chips, machines, prices, tiers, failures, models; each row with its source.

``builtin()`` is what ships; ``load(directory)`` lays a user's rows over it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn, Protocol

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog import overlay, tables
from trainplan_models.catalog.dates import price_age_days
from trainplan_models.catalog.pools import Pool, build_pools
from trainplan_models.catalog.reading import R, Table, read_table
from trainplan_models.catalog.records import (
    Accelerator,
    BillingMode,
    Commitment,
    DatedPrice,
    Default,
    DroppedOffer,
    FailureProfile,
    Model,
    NodeType,
    Offer,
    SpotBand,
    SpotProfile,
    StorageTier,
    TransferPrice,
)

__all__ = ["REFERENCE", "Catalog", "Pool", "builtin", "load", "price_age_days"]

REFERENCE = "reference"
"""The cloud of the machines that are not rented: the makers' own designs, which owned clusters follow."""

ANY, ASSUMED = "any", "*"
"""Clouds of storage tiers: what every node has, and what is assumed where nothing is known."""

_VENDORS = re.compile(r"^(?:nvidia|amd|intel|habana|google|aws|amazon)+")
_REMARK = re.compile(r"\([^)]*\)")
_JOINERS = re.compile(r"[^a-z0-9.]+")


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    """A name without case, punctuation, remarks in brackets and maker."""
    return _VENDORS.sub("", _JOINERS.sub("", _REMARK.sub("", name.casefold())))


def _unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    fix = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names)}"
    raise InputError(Problem(f"unknown {what} {name!r}", fix=fix))


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """All tables, and the look-ups that need more than one of them. Never changed after it is made."""

    accelerators: dict[str, Accelerator]
    nodes: dict[tuple[str, str], NodeType]
    """By cloud and instance type."""
    offers: tuple[Offer, ...]
    modes: dict[str, BillingMode]
    commitments: tuple[Commitment, ...]
    tiers: tuple[StorageTier, ...]
    transfers: tuple[TransferPrice, ...]
    failures: dict[str, FailureProfile]
    spot: dict[tuple[str, str], SpotProfile]
    """By profile and band; the band ``""`` stands for the whole profile."""
    spot_bands: tuple[SpotBand, ...]
    defaults: dict[str, Default]
    models: dict[str, Model]
    dropped: tuple[DroppedOffer, ...] = ()
    """Listed prices that are not among the offers, and why."""
    dated_prices: tuple[DatedPrice, ...] = ()
    accelerator_names: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Name of the chip by its plain names and aliases."""
    model_names: Mapping[str, str] = field(default_factory=dict, repr=False)

    def accelerator(self, name: str) -> Accelerator:
        """The chip of that name or alias; case, dashes and the maker's name do not matter.

        Raises:
            InputError: no such chip; names the nearest.
        """
        known = self.find_accelerator(name)
        return known if known is not None else _unknown("accelerator", name, self.accelerators)

    def find_accelerator(self, name: str) -> Accelerator | None:
        """As ``accelerator``, None where there is none."""
        known = self.accelerator_names.get(_plain(name))
        return None if known is None else self.accelerators[known]

    def model(self, name: str) -> Model:
        """The model of that name or alias; an organisation before a slash does not matter.

        Raises:
            InputError: no such model; names the nearest.
        """
        known = self.model_names.get(_plain(name)) or self.model_names.get(_plain(name.rsplit("/", 1)[-1]))
        return self.models[known] if known is not None else _unknown("model", name, self.models)

    def node(self, cloud: str, instance_type: str) -> NodeType:
        """The machine of that instance type.

        Raises:
            InputError: no such type in that cloud; names the nearest.
        """
        known = self.nodes.get((cloud, instance_type))
        if known is not None:
            return known
        return _unknown(f"instance type of {cloud}", instance_type, (t for c, t in self.nodes if c == cloud))

    def default(self, key: str) -> float:
        """The number assumed for ``key``, in the unit of its row.

        Raises:
            InputError: no such key.
        """
        row = self.defaults.get(key)
        return row.value if row is not None else _unknown("default", key, self.defaults)

    def offers_for(
        self,
        accelerators: Iterable[str] = (),
        clouds: Iterable[str] = (),
        regions: Iterable[str] = (),
        modes: Iterable[str] = (),
    ) -> tuple[Offer, ...]:
        """Offers of these chips (names or aliases), clouds, regions and billing modes; empty means all.

        Raises:
            InputError: a name that no row has.
        """
        chips = {self.accelerator(name).name for name in accelerators}
        wanted_clouds = self._known("cloud", clouds, {offer.cloud for offer in self.offers})
        wanted_regions = self._known("region", regions, {offer.region for offer in self.offers})
        wanted_modes = self._known("billing mode", modes, self.modes)
        return tuple(
            offer
            for offer in self.offers
            if (not wanted_clouds or offer.cloud in wanted_clouds)
            and (not wanted_regions or offer.region in wanted_regions)
            and (not wanted_modes or offer.mode in wanted_modes)
            and (not chips or self.chip_of(offer.cloud, offer.instance_type).name in chips)
        )

    @staticmethod
    def _known(what: str, names: Iterable[str], known: Iterable[str]) -> frozenset[str]:
        wanted, all_known = frozenset(names), frozenset(known)
        for name in sorted(wanted - all_known):
            _unknown(what, name, all_known)
        return wanted

    def chip_of(self, cloud: str, instance_type: str) -> Accelerator:
        """The chip in a machine."""
        return self.accelerator(self.node(cloud, instance_type).accelerator)

    def pools(self) -> dict[str, Pool]:
        """Every place where nodes can be had, by name, with its price under each billing mode."""
        return build_pools(self)

    def reference_node(self, accelerator: str, accelerators: int) -> NodeType:
        """The machine an owned cluster of this chip is taken to be made of.

        The maker's design with that many chips, else the design with another number of them scaled to it.

        Raises:
            InputError: no such chip, or no design with it.
        """
        chip = self.accelerator(accelerator)
        designs = [node for (cloud, _), node in self.nodes.items() if cloud == REFERENCE]
        own = [node for node in designs if self.accelerator(node.accelerator).name == chip.name]
        if not own:
            with_design = {self.accelerator(node.accelerator).name for node in designs}
            _unknown("reference machine for", chip.name, with_design)
        nearest = min(own, key=lambda node: abs(node.accelerators - accelerators))
        if nearest.accelerators == accelerators:
            return nearest
        share = accelerators / nearest.accelerators
        scaled = {
            name: None if value is None else value * share
            for name in ("vcpus", "host_memory_bytes", "local_nvme_bytes", "power_w")
            for value in (getattr(nearest, name),)
        }
        domain = chip.scaleup_devices if chip.scaleup_devices > nearest.accelerators else accelerators
        note = f"scaled from the {nearest.accelerators} chips of {nearest.instance_type}"
        update = {"accelerators": accelerators, "scaleup_devices": domain, "note": note, **scaled}
        return nearest.model_copy(update=update)

    def tiers_for(self, cloud: str, region: str) -> tuple[StorageTier, ...]:
        """Storage of a place: rows of the region before those of the cloud, and what every node has.

        Kinds of which the cloud has no row are those assumed for any cloud.
        """
        best: dict[str, StorageTier] = {}
        for tier in self.tiers:
            if tier.cloud in (cloud, ANY) and (
                tier.region == region or (tier.region == "*" and tier.name not in best)
            ):
                best[tier.name] = tier
        kinds = {tier.kind for tier in best.values()}
        assumed = (tier for tier in self.tiers if tier.cloud == ASSUMED and tier.kind not in kinds)
        return (*best.values(), *assumed)

    def transfers_for(self, cloud: str, region: str, to: str) -> tuple[TransferPrice, ...]:
        """Volume brackets, in order, of the price from a region ``to`` ``internet``, ``cross-zone``,
        ``cross-region`` or the name of a region of the same cloud.

        The nearest rows win: region before cloud before what is assumed of any cloud; a named
        destination before ``cross-region``.

        Raises:
            InputError: no row covers it.
        """
        targets = (to,) if to in ("internet", "cross-zone", "cross-region") else (to, "cross-region")
        for source, place in ((cloud, region), (cloud, "*"), (ASSUMED, "*")):
            for target in targets:
                found = [
                    row
                    for row in self.transfers
                    if row.cloud == source and row.region == place and row.to == target
                ]
                if found:
                    return tuple(sorted(found, key=lambda row: row.from_gb))
        raise InputError(Problem(f"no transfer price from {cloud}/{region} to {to}"))


_FOLDER = files("trainplan_models.catalog")


class _Rows(Protocol):
    def __call__(self, table: Table[R], /) -> list[R]: ...


def _shipped(table: Table[R]) -> list[R]:
    return _shipped_rows(table.kind)


@cache
def _shipped_rows(kind: str) -> list[Any]:
    sheet = read_table(tables.TABLES[kind], _FOLDER)
    return [] if sheet is None else sheet.rows


def _make(rows: _Rows) -> Catalog:
    accelerators = {row.name: row for row in rows(tables.ACCELERATORS)}
    models = {row.name: row for row in rows(tables.MODELS)}
    return Catalog(
        accelerators=accelerators,
        nodes={(row.cloud, row.instance_type): row for row in rows(tables.NODES)},
        offers=tuple(rows(tables.OFFERS)),
        modes={row.mode: row for row in rows(tables.MODES)},
        commitments=tuple(rows(tables.COMMITMENTS)),
        tiers=tuple(rows(tables.TIERS)),
        transfers=tuple(rows(tables.TRANSFERS)),
        failures={row.name: row for row in rows(tables.FAILURES)},
        spot={(row.name, row.band): row for row in rows(tables.SPOT)},
        spot_bands=tuple(rows(tables.SPOT_BANDS)),
        defaults={row.key: row for row in rows(tables.DEFAULTS)},
        models=models,
        dropped=tuple(rows(tables.DROPPED)),
        dated_prices=tuple(rows(tables.DATED_PRICES)),
        accelerator_names=_names("accelerator", accelerators),
        model_names=_names("model", models),
    )


def _names(what: str, rows: Mapping[str, Accelerator] | Mapping[str, Model]) -> dict[str, str]:
    """Row name by plain name; a row's own name wins over the alias of another.

    Raises:
        InputError: two rows claim the same alias.
    """
    own = {_plain(name): name for name in rows}
    names = dict(own)
    for row in rows.values():
        for alias in row.aliases:
            plain = _plain(alias)
            if plain not in own and names.setdefault(plain, row.name) != row.name:
                claimed = f"{names[plain]} and {row.name} both claim the {what} name {alias!r}"
                raise InputError(Problem(claimed, key="aliases", fix="Keep it in one of the two rows"))
    return names


@lru_cache(maxsize=1)
def builtin() -> Catalog:
    """The catalogue that ships."""
    return _make(_shipped)


def load(directory: str | Path) -> Catalog:
    """The shipped catalogue with a user's rows over it.

    A directory holds files of the same names and columns as the shipped ones, any of them. A row with the
    key of a shipped row replaces it; other rows are added. The files are only read.

    Raises:
        InputError: with every mistake of the files, by file and line.
    """
    own = overlay.read_directory(Path(directory), _FOLDER)

    def rows(table: Table[R]) -> list[R]:
        return overlay.merge(table, _shipped(table), own.sheet(table))

    catalog = _make(rows)
    overlay.check_references(catalog, own)
    return catalog
