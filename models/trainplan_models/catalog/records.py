"""The rows of the catalogue. One record class per CSV file in this folder.

Every row says where its numbers come from (``source``) and of when they are (``as_of``, ISO date
or ``YYYY-MM``, or a bounded interval such as ``2025-11..2026-08``).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainplan_models.base import Record

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0)]


class Row(Record):
    """What all catalogue rows share."""

    source: str
    as_of: str
    note: str = ""


class Accelerator(Row):
    """One chip. Peaks are dense (no sparsity)."""

    name: str
    vendor: str
    generation: str
    """volta, ampere, ada, hopper, blackwell, cdna2..4, tpu-v3..tpu-v7x, trainium1..3, gaudi1..3."""
    bf16_flops: Positive
    """Dense peak of the 16-bit format the chip trains in (fp16 on Volta), FLOP/s."""
    fp8_flops: Positive | None = None
    fp4_flops: Positive | None = None
    has_bf16: bool = True
    matmul_bf16_flops: Positive | None = None
    """Best matmul rate measured on the chip (MAMF), FLOP/s; None where nobody measured it."""
    memory_bytes: Positive
    memory_bytes_per_s: Positive
    scaleup_bytes_per_s: Positive
    """NVLink / xGMI / ICI / NeuronLink bandwidth of one device, per direction."""
    scaleup_devices: Count
    """Devices that reach each other over the scale-up links (8 in an HGX, 72 in an NVL72)."""
    nic_bytes_per_s: NotNegative | None = None
    """Scale-out bandwidth per accelerator in the reference machine, per direction."""
    tdp_w: Positive | None = None
    aliases: tuple[str, ...] = ()


class NodeType(Row):
    """One machine that can be rented or owned: an instance type with its accelerators."""

    cloud: str
    instance_type: str
    accelerator: str
    accelerators: Count
    nic_bytes_per_s: NotNegative
    """Scale-out bandwidth per accelerator, per direction; 0 when the machine cannot join a cluster."""
    vcpus: Positive | None = None
    host_memory_bytes: Positive | None = None
    local_nvme_bytes: NotNegative = 0.0
    power_w: Positive | None = None
    """Power drawn by the whole machine under load."""
    scaleup_devices: Count
    """Devices of this machine (or rack) that share scale-up links."""


class Offer(Row):
    """The price of one node of one instance type in one region under one billing mode."""

    cloud: str
    region: str
    instance_type: str
    mode: str
    usd_per_node_h: Positive
    zones: Count = 1
    """Zones of the region that were listed at this price or above; the offer is the cheapest of them."""

    @property
    def pool(self) -> str:
        """``cloud/region/instance_type``, the name of the pool in cases and reports."""
        return f"{self.cloud}/{self.region}/{self.instance_type}"


class DroppedOffer(Row):
    """A price that was listed and is not used, and the rule that keeps it out."""

    cloud: str
    region: str
    zone: str = ""
    instance_type: str
    mode: str
    """Billing mode the list gave it for."""
    usd_per_node_h: float | None = None
    """As listed; None where the list has no price or no number."""
    rule: str
    """Name of the rule, one of ``prices.RULES``."""
    reason: str


class BillingMode(Row):
    """How a way of paying behaves. Modes differ by data, not by code."""

    mode: str
    paid: str
    """``per-hour`` (while used), ``committed`` (paid whether used or not), ``held`` (already there)."""
    preemptible: bool = False
    quota_key: str
    """Which quota of the pool it draws on; reservations and blocks have their own."""
    durations_days: tuple[float, ...] = ()
    """Lengths it is sold in; empty when any length can be used."""
    sizes_nodes: tuple[int, ...] = ()
    """Numbers of nodes it is sold in; empty when any number can be bought."""
    max_lead_days: float | None = None
    """How far ahead it may start."""
    unusable_tail_s: NotNegative = 0.0
    """Time before the end of the purchase in which nodes are already being taken back."""
    upfront_frac: Share = 0.0
    """Share paid at purchase."""
    max_nodes: int | None = None
    """Most nodes over all purchases of a pool."""
    max_run_s: float | None = None
    """Longest stretch one run may last."""
    notice_s: float | None = None
    """Warning before nodes are taken away."""


class Commitment(Row):
    """What a committed mode costs on an instance type: a price, or a share off the on-demand price."""

    mode: str
    cloud: str
    instance_type: str
    """An instance type, or ``*`` for all types of the cloud."""
    usd_per_node_h: Positive | None = None
    discount_frac: Share | None = None
    """Share off the on-demand price of the pool; used when no price is given."""
    regions: tuple[str, ...] = ()
    """Regions where it is sold; empty for every region with an on-demand offer."""


class DatedPrice(Row):
    """What a node costs from a day on, until one, or between two; before and after, what other tables say."""

    cloud: str
    region: str
    instance_type: str
    mode: str
    usd_per_node_h: Positive
    valid_from: str = ""
    """The first day on which it holds, like 2026-08-31; empty: always before ``valid_until``."""
    valid_until: str = ""
    """The last day on which it holds; empty: from ``valid_from`` on for good."""

    @property
    def pool(self) -> str:
        """``cloud/region/instance_type``."""
        return f"{self.cloud}/{self.region}/{self.instance_type}"


class StorageTier(Row):
    """One place to keep bytes in one cloud."""

    cloud: str
    """A cloud; ``any`` for what every node has (local NVMe); ``*`` for what is assumed of a cloud that has
    no row of the kind."""
    service: str
    tier: str
    region: str = "*"
    kind: str
    """``object``, ``parallel-fs``, ``file``, ``block``, ``local``."""
    usd_per_gb_month: NotNegative
    min_days: NotNegative = 0.0
    min_object_bytes: NotNegative = 0.0
    retrieval_usd_per_gb: NotNegative = 0.0
    write_usd_per_10k: NotNegative = 0.0
    read_usd_per_10k: NotNegative = 0.0
    retrieval_s: NotNegative = 0.0
    """Wait before the first byte (hours for archives)."""
    mbps_per_tib: float | None = None
    """Throughput bought with each TiB of capacity; None where throughput is not tied to size."""
    min_size_bytes: float = 0.0
    verified: bool = True

    @property
    def name(self) -> str:
        """``cloud/service/tier``, unique within a region."""
        return f"{self.cloud}/{self.service}/{self.tier}"


class TransferPrice(Row):
    """Price per GB moved from a region, by volume bracket within a month."""

    cloud: str
    """A cloud, or ``*`` for what is assumed of a cloud without rows."""
    region: str
    """A region, or ``*`` for the cloud's default."""
    to: str
    """``internet``, ``cross-region``, ``cross-zone``, or a region name."""
    from_gb: NotNegative = 0.0
    to_gb: Positive | None = None
    usd_per_gb: NotNegative


class FailureProfile(Row):
    """How often nodes and jobs fail, and how long each part of a recovery takes."""

    name: str
    failures_per_1000_node_days: float
    soft_failures_per_day: float = 0.0
    """Failures of the job as a whole that do not grow with its size (bad code, data, scheduler)."""
    detect_s: float
    requeue_s: float
    """From detection until a full set of nodes runs again, without a spare."""
    spare_swap_s: float
    """The same with a warm spare node in the job."""
    repair_s: float
    """Time until a failed node is back; sizes the spares."""
    warmup_s: float
    """From loaded checkpoint to full speed (compile, caches, data loaders)."""


class SpotProfile(Row):
    """How spot capacity behaves; named worlds that are never averaged."""

    name: str
    band: str = ""
    """Interruption band this row stands for, e.g. ``<5%``; empty for a whole profile."""
    preemptions_per_node_h: float
    """Loss rate of one node held."""
    gang_correlation: float
    """0: nodes are lost independently; 1: a whole gang is lost in one event. The gang's loss rate is
    ``rate * nodes ** (1 - gang_correlation)``."""
    reacquire_s: float
    """Mean wait until the whole gang is back after a loss."""


class SpotBand(Row):
    """Interruption band of an instance type in a region, as the provider publishes it."""

    cloud: str
    region: str
    instance_type: str
    band: str


class Default(Row):
    """A default the product assumes when the case is silent."""

    key: str
    value: float
    unit: str


class Uncertainty(Row):
    """How one cause that all of a plan shares may turn out, as a distribution."""

    what: str
    """The cause: ``throughput_factor``, ``capacity_delay_s``, ..."""
    applies_to: str = "*"
    """What it holds for (a billing mode, a spot profile, a failure profile); ``*`` for all that have no row."""
    distribution: str
    """``constant``, ``normal``, ``lognormal``, ``triangular``, ``quantiles``, ``delayed``."""
    parameters: tuple[str, ...]
    """``name=value`` each."""


class Model(Row):
    """A well-known model shape with its published parameter count."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    """Width of one head; with ``kv_lora_rank`` the part of it without rotary positions."""
    ffn: int
    """Hidden width of the MLP of a dense layer (all gate/up halves have this width)."""
    vocab: int
    """Rows of the embedding table, padding included."""
    gated_mlp: bool
    tied_embeddings: bool
    max_positions: int = 0
    """Learned position embeddings; 0 for rotary or ALiBi."""
    qkv_bias: bool = False
    """Biases on the query, key and value projections."""
    linear_bias: bool = False
    """Biases on every linear layer (GPT family)."""
    norm_bias: bool = False
    parallel_block: bool = False
    """Attention and MLP read the same normalised input."""
    experts: int = 0
    """Routed experts of a mixture-of-experts layer; 0 for a dense model."""
    experts_per_token: int = 0
    """Routed experts one token visits, beside the shared ones."""
    expert_ffn: int = 0
    shared_experts: int = 0
    shared_expert_ffn: int = 0
    """Hidden width of one shared expert."""
    dense_layers: int = 0
    """Leading (or interleaved) layers with a dense MLP in a mixture-of-experts model."""
    q_lora_rank: int = 0
    """Latent width of the queries; 0 where they are projected at once."""
    kv_lora_rank: int = 0
    """Latent width of keys and values (multi-head latent attention); 0 for plain attention."""
    rope_head_dim: int = 0
    """Rotary part of a head, beside ``head_dim``; its key is shared by all heads."""
    v_head_dim: int = 0
    sliding_window: int = 0
    published_params: float
    """Text model only, every weight counted once (tied embeddings once)."""
    published_active_params: float | None = None
    """Weights one token uses, both embedding tables counted; None for dense models."""
    aliases: tuple[str, ...] = ()
