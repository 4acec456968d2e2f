"""The files of the catalogue, and how their rows are told apart."""

from __future__ import annotations

from typing import Any

from trainplan_models.catalog.reading import Table
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

ACCELERATORS = Table("accelerators", Accelerator, ("name",))
NODES = Table("nodes", NodeType, ("cloud", "instance_type"))
OFFERS = Table("offers", Offer, ("cloud", "region", "instance_type", "mode"))
DROPPED = Table("dropped_offers", DroppedOffer, ("cloud", "region", "zone", "instance_type", "mode", "rule"))
MODES = Table("modes", BillingMode, ("mode",))
COMMITMENTS = Table(
    "commitments",
    Commitment,
    ("mode", "cloud", "instance_type", "regions"),
    replaced_by=("mode", "cloud", "instance_type"),
)
DATED_PRICES = Table(
    "dated_prices", DatedPrice, ("cloud", "region", "instance_type", "mode", "valid_from", "valid_until")
)
TIERS = Table("storage_tiers", StorageTier, ("cloud", "service", "tier", "region"))
TRANSFERS = Table(
    "transfers",
    TransferPrice,
    ("cloud", "region", "to", "from_gb"),
    replaced_by=("cloud", "region", "to"),
)
FAILURES = Table("failure_profiles", FailureProfile, ("name",))
SPOT = Table("spot_profiles", SpotProfile, ("name", "band"))
SPOT_BANDS = Table("spot_bands", SpotBand, ("cloud", "region", "instance_type"))
DEFAULTS = Table("defaults", Default, ("key",))
MODELS = Table("models", Model, ("name",))

TABLES: dict[str, Table[Any]] = {
    table.kind: table
    for table in (
        ACCELERATORS,
        NODES,
        OFFERS,
        DROPPED,
        MODES,
        COMMITMENTS,
        DATED_PRICES,
        TIERS,
        TRANSFERS,
        FAILURES,
        SPOT,
        SPOT_BANDS,
        DEFAULTS,
        MODELS,
    )
}
"""By the name of the file without ``.csv``."""
