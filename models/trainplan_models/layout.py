"""Which parallel layouts are legal, and all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.layout_rules import (
    MAX_TENSOR,
    RECOMPUTE,
    Recompute,
    Rules,
    all_rules,
    context_degrees,
    divisors,
    expert_degrees,
    pipeline_splits,
    rules_of,
    tensor_degrees,
)
from trainplan_models.plan import Layout
from trainplan_models.workload import ModelShape, TrainSetup

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

__all__ = [
    "RECOMPUTE",
    "LayoutGrid",
    "Recompute",
    "Rules",
    "all_rules",
    "check_layout",
    "divisors",
    "enumerate_layouts",
    "grid_of",
    "join",
    "rules_of",
    "with_layout",
]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class LayoutGrid:
    """Many layouts as one integer array per field, all of the same length."""

    nodes: Ints
    dp: Ints
    tp: Ints
    pp: Ints
    vp: Ints
    cp: Ints
    ep: Ints
    zero_stage: Ints
    shard_group: Ints
    """Devices a ZeRO shard spans; 0: all of data parallel."""
    micro_batch: Ints
    recompute: Ints
    sequence_parallel: Ints

    def __len__(self) -> int:
        return len(self.dp)

    def take(self, index: NDArray[np.intp] | Mask | slice) -> LayoutGrid:
        """The layouts at ``index`` (positions, a mask or a slice)."""
        return LayoutGrid(*(getattr(self, field.name)[index] for field in fields(self)))

    def record(self, i: int, precision: str = "bf16") -> Layout:
        """Layout ``i`` as the record that plans carry."""
        return Layout(
            dp=int(self.dp[i]),
            tp=int(self.tp[i]),
            pp=int(self.pp[i]),
            vp=int(self.vp[i]),
            cp=int(self.cp[i]),
            ep=int(self.ep[i]),
            zero_stage=int(self.zero_stage[i]),
            shard_group=int(self.shard_group[i]),
            micro_batch=int(self.micro_batch[i]),
            recompute=RECOMPUTE[int(self.recompute[i])],
            sequence_parallel=bool(self.sequence_parallel[i]),
            precision=precision,
        )

    @property
    def accelerators(self) -> Ints:
        """Devices each layout spans."""
        return self.dp * self.tp * self.pp * self.cp


def grid_of(layouts: Sequence[Layout], accelerators_per_node: int) -> LayoutGrid:
    """The grid of single layouts, in order."""

    def column(name: str) -> Ints:
        return np.array([int(getattr(layout, name)) for layout in layouts], dtype=np.int64)

    devices = np.array([layout.accelerators for layout in layouts], dtype=np.int64)
    return LayoutGrid(
        nodes=-(-devices // accelerators_per_node),
        recompute=np.array([RECOMPUTE.index(layout.recompute) for layout in layouts], dtype=np.int64),
        **{
            name: column(name)
            for name in [
                "dp",
                "tp",
                "pp",
                "vp",
                "cp",
                "ep",
                "zero_stage",
                "shard_group",
                "micro_batch",
                "sequence_parallel",
            ]
        },
    )


def join(grids: Sequence[LayoutGrid]) -> LayoutGrid:
    """Grids one after another."""
    return LayoutGrid(
        *(np.concatenate([getattr(grid, field.name) for grid in grids]) for field in fields(LayoutGrid))
    )


class _Builder:
    """Grows columns of partial layouts, one choice at a time, and counts what each rule removes."""

    def __init__(self, nodes: Ints) -> None:
        self.columns = {"nodes": nodes}
        self.removed: Counter[str] = Counter()

    def tall(self, name: str) -> Ints:
        """A column against which options can be broadcast."""
        return self.columns[name][:, None]

    def choose(self, name: str, options: Ints, rules: Sequence[tuple[str, Mask]] = ()) -> None:
        """Add a column with every option for every row that all ``rules`` (rows by options) allow."""
        rows = len(self.columns["nodes"])
        if not rules:
            self.columns = {key: np.repeat(column, len(options)) for key, column in self.columns.items()}
            self.columns[name] = np.tile(options, rows)
            return
        legal = np.ones((rows, len(options)), dtype=bool)
        for rule, mask in rules:
            before = np.count_nonzero(legal)
            legal &= mask
            lost = int(before - np.count_nonzero(legal))
            if lost:
                self.removed[rule] += lost
        row, option = np.nonzero(legal)
        self.columns = {key: column[row] for key, column in self.columns.items()}
        self.columns[name] = options[option]


def _column(values: Sequence[int]) -> Ints:
    return np.asarray(values, dtype=np.int64)


def enumerate_layouts(
    setup: TrainSetup,
    accelerator: Accelerator,
    node: NodeType,
    node_counts: Sequence[int],
    *,
    tensor_across_domains: bool = False,
) -> tuple[LayoutGrid, Counter[str]]:
    """Every legal layout for every node count, and how many (partial) layouts each rule removed.

    Memory is not looked at here. Tensor parallelism stays within the scale-up domain unless
    ``tensor_across_domains``.

    Raises:
        InputError: the framework is not known.
    """
    shape, rules, world = setup.shape, rules_of(setup.framework), node.accelerators
    domain, batch = max(node.scaleup_devices, 1), setup.global_batch_sequences
    chunks = pipeline_splits(shape, rules)
    counts = np.unique(_column(node_counts))
    build = _Builder(counts[counts > 0])
    tensor = _tensor_options(shape, rules, domain, tensor_across_domains)
    inner = [
        (tp, pp, cp) for tp in tensor for pp in chunks for cp in context_degrees(setup.sequence_length, rules)
    ]
    product = _column([tp * pp * cp for tp, pp, cp in inner])
    devices = build.tall("nodes") * world
    fills = devices % product == 0
    not_more = devices <= product * batch
    build.choose(
        "inner",
        np.arange(len(inner)),
        [
            ("devices must be a multiple of tp*pp*cp", fills),
            ("data parallel must not exceed the global batch", not_more),
        ],
    )
    choice = build.columns.pop("inner")
    columns = build.columns
    for name, values in zip(("tp", "pp", "cp"), zip(*inner, strict=True), strict=True):
        columns[name] = _column(values)[choice]
    columns["dp"] = columns["nodes"] * world // product[choice]
    micro = _column([m for m in MICRO_BATCHES if m <= batch])
    whole = batch % (build.tall("dp") * micro) == 0
    rules_of_batch = [("global batch must be a multiple of dp*micro_batch", whole)]
    if setup.ramp:
        even = np.all([count % (build.tall("dp") * micro) == 0 for _, count in setup.ramp], axis=0)
        rules_of_batch.append(("every batch of the ramp must be a multiple of dp*micro_batch", even))
    build.choose("micro_batch", micro, rules_of_batch)
    _choose_experts(build, shape, rules)
    _choose_virtual(build, setup, rules, chunks)
    _choose_sharding(build, rules, world, domain)
    build.choose("recompute", _column([RECOMPUTE.index(word) for word in rules.recompute]))
    columns = build.columns
    columns["sequence_parallel"] = (columns["tp"] > 1).astype(np.int64) * rules.sequence_parallel
    return LayoutGrid(**{field.name: columns[field.name] for field in fields(LayoutGrid)}), build.removed


def _tensor_options(shape: ModelShape, rules: Rules, domain: int, across: bool) -> list[int]:
    # A degree that does not divide the domain leaves groups with members in two of them.
    degrees = tensor_degrees(shape, rules, MAX_TENSOR if across else min(domain, MAX_TENSOR))
    return [tp for tp in degrees if domain % tp == 0 or (across and tp % domain == 0)]


def _choose_experts(build: _Builder, shape: ModelShape, rules: Rules) -> None:
    options = _column(expert_degrees(shape, rules))
    divides = (build.tall("dp") * build.tall("cp")) % options == 0
    build.choose("ep", options, [("expert parallel must divide dp*cp", divides)] if shape.is_moe else ())


def _choose_virtual(build: _Builder, setup: TrainSetup, rules: Rules, chunks: list[int]) -> None:
    most = min(setup.shape.layers // 2, 16) if rules.interleaved and rules.pipeline else 1
    options = _column([1, *(v for v in range(2, most + 1) if any(c % v == 0 and c > v for c in chunks))])
    legal_chunk = np.zeros(max(chunks) * int(options[-1]) + 1, dtype=bool)
    legal_chunk[chunks] = True
    pp = build.tall("pp")
    at_once = build.tall("dp") * build.tall("micro_batch")
    batches = [one.global_batch_sequences for _, one in setup.phases]
    rounds = np.all([batch // at_once % pp == 0 for batch in batches], axis=0)
    plain = options == 1
    build.choose(
        "vp",
        options,
        [
            ("interleaving needs a pipeline", plain | (pp > 1)),
            ("layers must split over pp*vp", legal_chunk[pp * options]),
            ("interleaving needs micro-batches in multiples of pp", plain | rounds),
        ],
    )


def _choose_sharding(build: _Builder, rules: Rules, world: int, domain: int) -> None:
    stages = _column(rules.zero_stages)
    alone = (stages < 2) | (build.tall("pp") == 1) | rules.interleaved
    build.choose("zero_stage", stages, [("ZeRO 2 and 3 not with a pipeline in this framework", alone)])
    if not rules.hybrid_shard:
        build.columns["shard_group"] = np.zeros_like(build.columns["dp"])
        return
    columns = build.columns
    whole = max(world, domain)
    local = whole // np.minimum(columns["tp"] * columns["cp"], whole)
    useful = (
        (columns["zero_stage"] >= 2) & (local > 1) & (columns["dp"] > local) & (columns["dp"] % local == 0)
    )
    columns["local"] = local
    hybrid = np.array([False, True])
    build.choose(
        "hybrid",
        np.arange(2),
        [("hybrid sharding needs more replicas than one domain holds", ~hybrid | useful[:, None])],
    )
    build.columns["shard_group"] = build.columns.pop("local") * build.columns.pop("hybrid")


def check_layout(
    setup: TrainSetup,
    layout: Layout,
    accelerator: Accelerator,
    node: NodeType,
    *,
    tensor_across_domains: bool = False,
) -> list[str]:
    """What is illegal about a layout, each with the degrees that would be valid; empty when it is legal.

    Raises:
        InputError: the framework is not known.
    """
    shape, rules = setup.shape, rules_of(setup.framework)
    wrong: list[str] = []
    domain = max(node.scaleup_devices, 1)

    def need(name: str, value: int, valid: Sequence[int], why: str) -> None:
        if value not in valid:
            wrong.append(f"{name}={value} {why}; valid: {', '.join(str(v) for v in valid)}")

    need(
        "tp",
        layout.tp,
        _tensor_options(shape, rules, domain, tensor_across_domains),
        f"must split {shape.heads} heads, {shape.kv_heads} KV heads, the MLP "
        f"and a scale-up domain of {domain} evenly",
    )
    chunks = pipeline_splits(shape, rules)
    pipeline = [c for c in chunks if c * layout.vp in chunks] or [1]
    need("pp", layout.pp, pipeline, f"with vp={layout.vp} must split {shape.layers} layers")
    need(
        "cp",
        layout.cp,
        context_degrees(setup.sequence_length, rules),
        "must split the sequence in two chunks each",
    )
    need("ep", layout.ep, expert_degrees(shape, rules), f"must split {shape.experts} experts")
    need("zero_stage", layout.zero_stage, rules.zero_stages, f"is not offered by {rules.framework}")
    if shape.is_moe and (layout.dp * layout.cp * layout.tp) % layout.ep:
        wrong.append(f"ep={layout.ep} must divide dp*cp={layout.dp * layout.cp}")
    for _, one in setup.phases:
        wrong += [text for text in _batch_problems(one, layout) if text not in wrong]
    if layout.accelerators % node.accelerators and layout.accelerators > node.accelerators:
        wrong.append(f"{layout.accelerators} devices do not fill nodes of {node.accelerators}")
    if layout.recompute not in rules.recompute:
        wrong.append(
            f"recompute={layout.recompute} is not offered by {rules.framework}: {', '.join(rules.recompute)}"
        )
    return wrong


def _batch_problems(setup: TrainSetup, layout: Layout) -> list[str]:
    batch, wrong = setup.global_batch_sequences, []
    if batch % (layout.dp * layout.micro_batch):
        valid = [m for m in divisors(batch // layout.dp) if m <= 64] if batch % layout.dp == 0 else []
        hint = (
            f"valid micro_batch: {', '.join(map(str, valid))}" if valid else "dp must divide the global batch"
        )
        near = [d for d in divisors(batch) if layout.dp / 4 <= d <= layout.dp * 4]
        hint += "" if valid else f": {', '.join(map(str, near))}"
        wrong.append(
            f"global batch of {batch} is not a multiple of dp*micro_batch={layout.dp * layout.micro_batch}; {hint}"
        )
    elif layout.vp > 1 and (batch // (layout.dp * layout.micro_batch)) % layout.pp:
        count = batch // (layout.dp * layout.micro_batch)
        wrong.append(f"vp={layout.vp} needs micro-batches ({count}) in multiples of pp={layout.pp}")
    if layout.vp > 1 and layout.pp == 1:
        wrong.append(f"vp={layout.vp} needs a pipeline; valid: 1")
    return wrong


def with_layout(setup: TrainSetup, layout: Layout) -> TrainSetup:
    """The setup trained in the precision of a layout."""
    return replace(setup, precision=layout.precision)
