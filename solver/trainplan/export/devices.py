"""What launchers call an accelerator (``devices.csv``): the first row whose prefix matches counts."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Device:
    """The names of one vendor's accelerators in launchers."""

    prefix: str
    vendor: str
    kubernetes_resource: str
    slurm_gres: str


@lru_cache(maxsize=1)
def _devices() -> tuple[Device, ...]:
    text = files("trainplan.export").joinpath("devices.csv").read_text(encoding="utf-8")
    return tuple(Device(**row) for row in csv.DictReader(text.splitlines()))


def device(accelerator: str) -> Device:
    """What launchers call ``accelerator``."""
    return next(row for row in _devices() if accelerator.lower().startswith(row.prefix))


def is_tpu(accelerator: str) -> bool:
    """Whether the accelerator is a TPU, which no program written for GPUs drives."""
    return device(accelerator).vendor == "google"


def runs_on(accelerator: str, *vendors: str) -> bool:
    """Whether the accelerator is of one of these vendors."""
    return device(accelerator).vendor in vendors


def gres_type(accelerator: str) -> str:
    """The Slurm type of the accelerator: its first word in lower case (``H100-SXM`` is ``h100``)."""
    return accelerator.lower().split("-")[0]
