"""The tables of ``trainplan estimate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainplan.report import wording
from trainplan.report.document import Column, Table

if TYPE_CHECKING:
    from trainplan_models.estimating import Estimate

TIME_WORDS = {
    "compute_s": "Matrix products and attention",
    "memory_bound_s": "Memory-bound operations",
    "launch_s": "Kernel launches",
    "recompute_s": "Recompute",
    "tp_s": "Tensor-parallel communication, exposed",
    "cp_s": "Context-parallel communication, exposed",
    "ep_s": "Expert-parallel communication, exposed",
    "pp_s": "Pipeline sends, exposed",
    "dp_s": "Data-parallel communication, exposed",
    "bubble_s": "Pipeline bubble",
    "optimizer_s": "Optimizer step",
    "overhead_s": "Host work and stragglers",
    "checkpoint_s": "Checkpoints",
}


def layouts(found: Sequence[Estimate], records: Sequence[Mapping[str, Any]]) -> Table:
    """The ranked layouts."""
    return Table(
        title="",
        columns=(
            Column("Layout"),
            Column("Tokens/s P50", numeric=True),
            Column("P10", numeric=True),
            Column("P90", numeric=True),
            Column("MFU", numeric=True),
            Column("Peak GiB", numeric=True),
        ),
        rows=tuple(
            (
                wording.layout_words(item.layout),
                f"{record['tokens_per_s']['p50']:,.0f}",
                f"{record['tokens_per_s']['p10']:,.0f}",
                f"{record['tokens_per_s']['p90']:,.0f}",
                wording.percent(item.mfu_frac),
                f"{record['peak_gib']:.1f}",
            )
            for item, record in zip(found, records, strict=True)
        ),
    )


def times(record: Mapping[str, Any]) -> Table:
    """A step by part."""
    parts, whole = record["time_s"], record["step_s"]
    return Table(
        title="Step time",
        columns=(Column("Part"), Column("Seconds", numeric=True), Column("Share", numeric=True)),
        rows=tuple(
            (words, f"{parts[name]:.4f}", wording.percent(parts[name] / whole))
            for name, words in TIME_WORDS.items()
            if parts[name] > 0.0
        ),
        total=("Step", f"{whole:.4f}", wording.percent(1.0)),
    )


def memory(record: Mapping[str, Any]) -> Table:
    """Memory by component and stage."""
    stages = record["memory_gib"]
    names = [name for name in stages["first"] if name != "total"]
    return Table(
        title="Memory per device, GiB",
        columns=(
            Column("Component"),
            Column("First stage", numeric=True),
            Column("Last stage", numeric=True),
        ),
        rows=tuple((name, f"{stages['first'][name]:.2f}", f"{stages['last'][name]:.2f}") for name in names),
        total=("total", f"{stages['first']['total']:.2f}", f"{stages['last']['total']:.2f}"),
        note=f"{record['usable_gib']:.1f} GiB can be allocated.",
    )


def removals(removed: Mapping[str, int]) -> Table:
    """Configurations ruled out, by rule."""
    return Table(
        title="",
        columns=(Column("Removed", numeric=True), Column("Because", wraps=True)),
        rows=tuple(
            (f"{count:,}", rule) for rule, count in sorted(removed.items(), key=lambda item: -item[1])
        ),
    )
