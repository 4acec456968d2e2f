"""What trainers call a model (``model_names.csv``), found by its sizes and not by its name."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from trainplan_models.workload import ModelShape


@dataclass(frozen=True, slots=True)
class ModelNames:
    """One model's names; empty where a trainer does not have it."""

    torchtitan_module: str = ""
    torchtitan_config: str = ""
    torchtitan_flavor: str = ""
    maxtext: str = ""
    hugging_face: str = ""


_Key = tuple[int, int, int, int, int, int]


@lru_cache(maxsize=1)
def _rows() -> dict[_Key, ModelNames]:
    text = files("trainplan.export").joinpath("model_names.csv").read_text(encoding="utf-8")
    found: dict[_Key, ModelNames] = {}
    for row in csv.DictReader(text.splitlines()):
        names = ModelNames(**{name: row[name] for name in ModelNames.__slots__})
        sizes = [int(row[size]) for size in ("layers", "hidden", "heads", "kv_heads", "vocab", "experts")]
        found[sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5]] = names
    return found


def names_of(shape: ModelShape | None) -> ModelNames:
    """What trainers call the model of this shape; all empty when none knows it."""
    if shape is None:
        return ModelNames()
    kv_heads = shape.heads if shape.kv_lora_rank else shape.kv_heads
    key = (shape.layers, shape.hidden, shape.heads, kv_heads, shape.vocab, shape.experts)
    return _rows().get(key, ModelNames())


def known_to(trainer: str) -> list[str]:
    """Names of the models a trainer has, in the order of the table."""
    return [name for names in _rows().values() if (name := getattr(names, trainer))]
