"""Which training program a launcher starts for a unit."""

from __future__ import annotations

from trainplan.export.accelerate import ACCELERATE
from trainplan.export.custom import CUSTOM
from trainplan.export.deepspeed import DEEPSPEED
from trainplan.export.launch import LaunchUnit
from trainplan.export.maxtext import MAXTEXT
from trainplan.export.megatron import MEGATRON
from trainplan.export.torchtitan import TORCHTITAN
from trainplan.export.trainer import Trainer
from trainplan.export.trl import TRL
from trainplan.export.verl import VERL

TRAINERS: dict[str, Trainer] = {
    trainer.name: trainer for trainer in (MEGATRON, TORCHTITAN, DEEPSPEED, ACCELERATE, TRL, VERL, MAXTEXT)
}

_BY_FRAMEWORK: dict[str, tuple[str, ...]] = {
    "megatron": ("megatron", "verl", "trl"),
    "torchtitan": ("torchtitan", "trl", "verl"),
    "fsdp": ("trl", "verl", "accelerate"),
    "deepspeed": ("trl", "deepspeed"),
    "maxtext": ("maxtext",),
}
"""Programs to try for the framework whose rules the layout was planned under, the best first."""


def trainer_for(unit: LaunchUnit) -> Trainer:
    """The first program of the unit's framework that is for its kind of task and can run its layout."""
    names = _BY_FRAMEWORK.get(unit.task.framework, ())
    able = (
        TRAINERS[name]
        for name in names
        if not TRAINERS[name].unsuited(unit) and not TRAINERS[name].refusals(unit)
    )
    return next(able, CUSTOM)


def why_custom(unit: LaunchUnit) -> list[str]:
    """Why no program was found, one line per program that was tried."""
    found = []
    for name in _BY_FRAMEWORK.get(unit.task.framework, ()):
        reasons = (
            [TRAINERS[name].unsuited(unit)]
            if TRAINERS[name].unsuited(unit)
            else TRAINERS[name].refusals(unit)
        )
        found += [f"{unit.name}: {TRAINERS[name].title} is not used: {reason}." for reason in reasons]
    return found
