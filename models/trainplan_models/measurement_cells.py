"""Cells of measurement tables: which chip, which machine, which model a row is about."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Protocol

from trainplan_models.catalog.records import Accelerator, Model, NodeType
from trainplan_models.workload import ModelShape, shape_of, total_params

Row = Mapping[str, str]

LARGEST_COUNT = 1e8
"""No size, degree or batch of a real run is larger."""
LARGEST_PARAMS = 1e14


class Known(Protocol):
    """The part of the catalogue that reading measurements needs."""

    @property
    def accelerators(self) -> Mapping[str, Accelerator]: ...

    @property
    def models(self) -> Mapping[str, Model]: ...


class NotJudged(Exception):
    """A row cannot be judged; the message is the reason."""


def number(row: Row, key: str) -> float | None:
    text = (row.get(key) or "").strip()
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def count(row: Row, key: str) -> int | None:
    value = number(row, key)
    if value is None or value < 1:
        return None
    if value > LARGEST_COUNT:
        raise NotJudged(f"{key} is {value:g}, which nothing real has")
    return int(value)


@lru_cache(maxsize=4)
def table(name: str) -> list[dict[str, str]]:
    text = files("trainplan_models.catalog").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def first_match(name: str, text: str) -> dict[str, str] | None:
    return next((row for row in table(name) if re.search(row["pattern"], text)), None)


def accelerator_of(row: Row, known: Known) -> Accelerator:
    label = row.get("accelerator", "")
    match = first_match("accelerator_labels.csv", label)
    if not label or match is None:
        raise NotJudged(
            f"accelerator {label!r} is not in the catalogue" if label else "accelerator not given"
        )
    if match["accelerator"] not in known.accelerators:
        raise NotJudged(f"accelerator {match['accelerator']!r} is not in the catalogue")
    found = known.accelerators[match["accelerator"]]
    factor = float(match["rate_factor"])
    update: dict[str, float | None] = {}
    if factor != 1.0:
        update["bf16_flops"] = found.bf16_flops * factor
        update["fp8_flops"] = found.fp8_flops and found.fp8_flops * factor
        update["fp4_flops"] = found.fp4_flops and found.fp4_flops * factor
    for key in ("memory_bytes", "memory_bytes_per_s"):
        if match[key]:
            update[key] = float(match[key])
    return found.model_copy(update=update) if update else found


def port_bytes_per_s(text: str, per_node: int) -> float | None:
    """Scale-out bandwidth per accelerator that an interconnect description states; None when it states none."""
    compute = re.search(r"Compute:([^|]*)", text)
    text = compute.group(1) if compute else text
    text = "|".join(part for part in text.split("|") if not re.search("Management|Gig|Storage", part)) or text
    if match := re.search(r"(\d+)\s*G(?:bps|b/s)?\s*/\s*(?:GPU|s per GPU)", text):
        return float(match.group(1)) * 1e9 / 8.0
    if match := re.search(r"400\s?Gb/s per GPU", text):
        return 50e9
    if match := re.search(r"(\d+)\s*Gbps/node", text):
        return float(match.group(1)) * 1e9 / 8.0 / per_node
    if match := re.search(r"(\d+)x\s*HDR", text):
        return float(match.group(1)) * 200e9 / 8.0 / per_node
    found = [
        float(count) * float(rate)
        for count, between, rate in re.findall(r"(\d+)\s*x\s([^x|]*?)(\d+)\s*G(?:b|B)", text)
        if "NVLINK" not in between.upper()
    ]
    return max(found) * 1e9 / 8.0 / per_node if found else None


def node_of(row: Row, accelerator: Accelerator, devices: int) -> tuple[NodeType, int]:
    per_node = count(row, "accelerators_per_node") or min(accelerator.scaleup_devices, 8)
    per_node = max(1, min(per_node, devices))
    domain = accelerator.scaleup_devices
    slices = re.search(r"(\d+) slice", row.get("interconnect", ""))
    if slices:
        domain = max(devices // int(slices.group(1)), 1)
    nic = port_bytes_per_s(row.get("interconnect", ""), max(count(row, "accelerators_per_node") or 8, 1))
    nic = nic or accelerator.nic_bytes_per_s or 3.1e9
    node = NodeType(
        source="row",
        as_of=row.get("year", ""),
        cloud="measured",
        instance_type=f"{per_node}x{accelerator.name}",
        accelerator=accelerator.name,
        accelerators=per_node,
        nic_bytes_per_s=nic,
        scaleup_devices=domain,
    )
    return node, -(-devices // per_node)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*?\)", "", name.lower()))


def _from_catalogue(row: Row, known: Known) -> ModelShape | None:
    """The catalogue's model of the row's name, or of the longest name that the row's begins with."""
    name = _plain(row.get("model_name", ""))
    params = (number(row, "params_b") or 0.0) * 1e9
    best, length = None, 0
    for model in known.models.values():
        for alias in (model.name, *model.aliases):
            own = _plain(alias)
            if own == name and name:
                return shape_of(model)
            begins = len(own) > max(length, 4) and name.startswith(own) and not name[len(own)].isdigit()
            if begins and params and 0.8 < model.published_params / params < 1.25:
                best, length = model, len(own)
    return shape_of(best) if best else None


def typical_shape(params: float, vocab: int = 50304) -> ModelShape:
    """A dense GPT shape with about ``params`` parameters, as deep and wide as models of that size are."""
    depth_of = ((1e9, 24), (4e9, 32), (2e10, 40), (4.5e10, 48), (8e10, 64), (2e11, 96), (6e11, 105))
    layers = next((depth for size, depth in depth_of if params <= size), 128)
    hidden = max(int(round((params / (12.0 * layers)) ** 0.5 / 128.0)) * 128, 256)
    return ModelShape(
        layers, hidden, hidden // 128, hidden // 128, 128, 4 * hidden, vocab, False, linear_bias=True,
        norm_bias=True, family="gpt3", name="typical",
    )  # fmt: skip


def _from_columns(row: Row) -> ModelShape:
    hidden, vocab = count(row, "hidden"), count(row, "vocab") or 50304
    params = (number(row, "params_b") or 0.0) * 1e9
    if not 0.0 <= params <= LARGEST_PARAMS:
        raise NotJudged(f"{params:g} parameters, which nothing real has")
    if hidden is None:
        if params and not count(row, "experts"):
            return typical_shape(params, vocab)
        raise NotJudged("model shape not given and not in the catalogue")
    heads = count(row, "heads") or max(hidden // 128, 1)
    layers = count(row, "layers")
    base = ModelShape(
        layers or 1, hidden, heads, count(row, "kv_heads") or heads, hidden // heads, count(row, "ffn") or 4 * hidden,
        vocab, family="gpt3", name=row.get("model_name", ""),
    )  # fmt: skip
    experts = count(row, "experts") or 0
    if experts:
        base = replace(base, experts=experts, experts_per_token=count(row, "topk") or 2, expert_ffn=base.ffn)
    full = re.search(r"of (\d+) layers", row.get("model_scale", ""))
    depth = int(full.group(1)) if full else layers
    if layers is None:
        one = total_params(replace(base, gated_mlp=False)) - total_params(
            replace(base, gated_mlp=False, layers=0)
        )
        if not params:
            raise NotJudged("neither layers nor parameters given")
        rest = total_params(replace(base, gated_mlp=False, layers=0, tied_embeddings=True))
        return replace(
            base, layers=max(round((params - rest) / one), 1), gated_mlp=False, tied_embeddings=True
        )
    if "reduced" in row.get("model_scale", ""):
        return replace(base, gated_mlp=True, family="llama")
    best = min(
        _variants(replace(base, layers=depth or 1)), key=lambda shape: abs(total_params(shape) - params)
    )
    return replace(best, layers=layers, dense_layers=min(best.dense_layers, layers))


def _variants(base: ModelShape) -> Iterable[ModelShape]:
    """Shapes that share the printed columns: gated or plain MLP, tied or untied embeddings, LLaMA's width."""
    widths = {base.ffn}
    if base.ffn == 4 * base.hidden and not base.experts:
        widths.add(-(-8 * base.hidden // 3 // 256) * 256)
    for width in sorted(widths):
        for gated in (False, True):
            for tied in (False, True):
                shape = replace(base, ffn=width, gated_mlp=gated, tied_embeddings=tied)
                yield shape if not gated else replace(shape, family="llama")


def model_shape(row: Row, known: Known) -> ModelShape:
    """The model of a row: its columns, completed from the catalogue.

    Raises:
        NotJudged: neither tells the shape.
    """
    if "Nemotron-H" in row.get("model_name", ""):
        raise NotJudged("hybrid state-space models are not modelled")
    found = _from_catalogue(row, known)
    if found is None or _contradicts(found, row):
        return _from_columns(row)
    found = replace(found, vocab=count(row, "vocab") or found.vocab)
    layers = count(row, "layers")
    if layers and layers != found.layers:
        dense = round(found.dense_layers * layers / found.layers)
        found = replace(found, layers=layers, dense_layers=dense)
    return found


def _contradicts(shape: ModelShape, row: Row) -> bool:
    """Whether the printed sizes are not those of the catalogue's model of that name."""
    sizes = {"hidden": shape.hidden, "heads": shape.heads}
    if not shape.is_moe:
        sizes["ffn"] = shape.ffn
    return any(value != size for key, size in sizes.items() if (value := count(row, key)))
