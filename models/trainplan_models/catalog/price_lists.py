"""Reads price lists in the columns of SkyPilot's catalogues (schemas v5 to v8)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.price_rules import PriceRow

GIB_BYTES = 2.0**30
MIB_BYTES = 2.0**20

REQUIRED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "Price")

SPLIT_NAMES = {
    "a2-highgpu": "A100",
    "a2-megagpu": "A100",
    "a2-ultragpu": "A100-80GB",
    "a3-highgpu": "H100",
    "a3-edgegpu": "H100",
    "a3-megagpu": "H100-MEGA",
    "a3-ultragpu": "H200",
    "a4-highgpu": "B200",
    "a4x-highgpu": "GB200",
}
"""Machines whose accelerators are priced in rows of their own, and what these rows call them."""

TPU_HOSTS = {
    "v4": ("TPU-v4", 2, 4),
    "v5litepod": ("TPU-v5e", 1, 8),
    "v5p": ("TPU-v5p", 2, 4),
    "v6e": ("TPU-v6e", 1, 8),
}
"""Chip, units of the slice's size for each chip, and chips of one host. A slice of many hosts costs what its
hosts cost, so only slices of one host are read."""

_TPU_SLICE = re.compile(r"tpu-(?P<generation>\w+)-(?P<size>\d+)$")
_SPLIT_TYPE = re.compile(r"(?P<family>.+)-(?P<count>\d+)g$")
_DEVICE_MIB = re.compile(r"'MemoryInfo': \{'SizeInMiB': (\d+)\}")

Cells = Mapping[str, str]


def read_price_list(path: Path, cloud: str = "", source: str = "", as_of: str = "") -> list[PriceRow]:
    """Read a price list.

    Args:
        path: a CSV file with the columns InstanceType, AcceleratorName, AcceleratorCount, Region, Price, and
            if there SpotPrice, AvailabilityZone, vCPUs, MemoryGiB, GpuInfo.
        cloud: whose prices; empty for the name of the folder the file is in.
        source: where it is from; empty for the name of the file.
        as_of: its date.

    Returns:
        A row for each zone and machine. Where machine and accelerators are priced apart, the sum of both.

    Raises:
        InputError: the file cannot be read or lacks a column.
    """
    where = {"cloud": cloud or path.resolve().parent.name, "source": source or path.name, "as_of": as_of}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [column for column in REQUIRED if column not in (reader.fieldnames or ())]
            if missing:
                fix = f"Price lists have the columns {', '.join(REQUIRED)}"
                raise InputError(
                    [Problem("no such column", key=c, file=str(path), line=1, fix=fix) for c in missing]
                )
            table = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read as CSV in UTF-8: {error}", file=str(path))) from error
    parts = {
        _part_key(cells): cells for cells in table if not cells["InstanceType"] and cells["AcceleratorName"]
    }
    return [row for cells in table for row in _rows(cells, parts, where)]


PartKey = tuple[str, str, str, float | None]


def _part_key(cells: Cells) -> PartKey:
    return cells["Region"], _zone(cells), cells["AcceleratorName"], _number(cells["AcceleratorCount"])


def _zone(cells: Cells) -> str:
    return cells.get("AvailabilityZone") or ""


def _rows(cells: Cells, parts: Mapping[PartKey, Cells], where: Mapping[str, str]) -> Iterator[PriceRow]:
    if not cells["InstanceType"]:
        yield from _tpu_host(cells, where)
        return
    split = _SPLIT_TYPE.match(cells["InstanceType"]) if not cells["AcceleratorName"] else None
    if split is None or split["family"] not in SPLIT_NAMES:
        yield _row(cells, cells, None, where)
        return
    key = (cells["Region"], _zone(cells), SPLIT_NAMES[split["family"]], float(split["count"]))
    part = parts.get(key)
    if part is not None:
        yield _row(cells, part, cells, where)


def _tpu_host(cells: Cells, where: Mapping[str, str]) -> Iterator[PriceRow]:
    tpu = _TPU_SLICE.match(cells["AcceleratorName"])
    if tpu is None or tpu["generation"] not in TPU_HOSTS:
        return
    chip, units, chips = TPU_HOSTS[tpu["generation"]]
    if int(tpu["size"]) == units * chips:
        host = {**cells, "InstanceType": cells["AcceleratorName"]}
        yield _row(host, {**cells, "AcceleratorName": chip, "AcceleratorCount": str(chips)}, None, where)


def _row(cells: Cells, part: Cells, host: Cells | None, where: Mapping[str, str]) -> PriceRow:
    """A machine (``cells``) with the accelerators of ``part``; ``host`` when it is priced apart."""
    count = _number(part["AcceleratorCount"]) or 0.0
    memory_gib = _number(cells.get("MemoryGiB") or "")
    return PriceRow(
        cloud=where["cloud"],
        region=cells["Region"],
        zone=_zone(cells),
        instance_type=cells["InstanceType"],
        accelerator=part["AcceleratorName"],
        accelerators=count,
        on_demand_usd_per_h=_sum(part["Price"], host["Price"] if host else None),
        spot_usd_per_h=_sum(part.get("SpotPrice") or "", (host.get("SpotPrice") or "") if host else None),
        host_usd_per_h=None if host is None else _number(host["Price"]) or 0.0,
        vcpus=_number(cells.get("vCPUs") or ""),
        host_memory_bytes=None if memory_gib is None else memory_gib * GIB_BYTES,
        device_memory_bytes=_device_memory_bytes(part.get("GpuInfo") or ""),
        source=where["source"],
        as_of=where["as_of"],
    )


def _sum(part: str, host: str | None) -> float | None:
    """Price of both; None when one of them has none."""
    first, second = _number(part), 0.0 if host is None else _number(host)
    return None if first is None or second is None else first + second


def _number(text: str) -> float | None:
    """The number in a cell, None when it is empty, nan when it is no number."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return float("nan")


@lru_cache(maxsize=4096)
def _device_memory_bytes(info: str) -> float | None:
    match = _DEVICE_MIB.search(info)
    return None if match is None else float(match[1]) * MIB_BYTES
