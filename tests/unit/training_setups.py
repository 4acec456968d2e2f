"""Machines, training setups and layouts for the tests of the physics."""

from __future__ import annotations

from trainplan_models import catalog
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.layout import LayoutGrid, grid_of
from trainplan_models.plan import Layout
from trainplan_models.workload import TrainSetup, shape_of


def machine(name: str = "H100-SXM", per_node: int = 8) -> tuple[Accelerator, NodeType]:
    """An accelerator of the catalogue in a node with its own network."""
    accelerator = catalog.builtin().accelerator(name)
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


def setup(
    model: str = "llama-3-8b", sequence: int = 8192, batch: int = 512, framework: str = "megatron"
) -> TrainSetup:
    """How a model of the catalogue is trained."""
    return TrainSetup(shape_of(catalog.builtin().model(model)), sequence, batch, framework=framework)


def grid(*layouts: Layout) -> LayoutGrid:
    """Layouts on nodes of eight accelerators."""
    return grid_of(layouts, 8)
