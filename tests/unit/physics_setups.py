"""Machines and models that the tests of the physics share."""

from __future__ import annotations

from trainplan_models import catalog
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.layout import LayoutGrid, grid_of
from trainplan_models.plan import Layout
from trainplan_models.workload import TrainSetup, shape_of


def machine(name: str = "H100-SXM", per_node: int = 8) -> tuple[Accelerator, NodeType]:
    """An accelerator and a machine that holds it."""
    known = catalog.builtin()
    accelerator = known.accelerator(name)
    node = NodeType(
        source="test",
        as_of="2026-01",
        cloud="test",
        instance_type="test",
        accelerator=accelerator.name,
        accelerators=per_node,
        nic_bytes_per_s=accelerator.nic_bytes_per_s or 0.0,
        scaleup_devices=accelerator.scaleup_devices,
    )
    return accelerator, node


def setup(model: str = "llama-3-8b", sequence: int = 8192, batch: int = 512, **changes: object) -> TrainSetup:
    """A training setup of a catalogue model."""
    shape = shape_of(catalog.builtin().model(model))
    return TrainSetup(shape, sequence, batch, **changes)  # type: ignore[arg-type]


def grid(*layouts: Layout) -> LayoutGrid:
    """Layouts on machines of eight."""
    return grid_of(layouts, 8)
