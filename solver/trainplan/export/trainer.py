"""Training programs: the files one takes, and the script that starts it on a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainplan.export.launch import Launch, LaunchUnit
from trainplan.export.target import (
    NO_TRAINER,
    Command,
    Exporter,
    header_of,
    mentioned,
    render,
    unit_environment,
)

Starter = Literal["torchrun", "accelerate", "ray", "direct", "custom"]


@dataclass(frozen=True, slots=True)
class Trainer:
    """One training program."""

    name: str
    title: str
    checked: str
    starter: Callable[[LaunchUnit], Starter]
    """What starts its processes on a node: ``torchrun`` or ``accelerate`` (one process per accelerator),
    ``ray`` (one driver on the first node), ``direct`` (one process per node), ``custom`` (the user's command)."""
    files: Callable[[LaunchUnit], dict[str, str]]
    """File name (beside the start script) to text."""
    command: Callable[[LaunchUnit], list[str]]
    """The words after the starter; ``$NAME`` stays a shell variable."""
    unsuited: Callable[[LaunchUnit], str]
    refusals: Callable[[LaunchUnit], list[str]]
    cannot_express: Callable[[LaunchUnit], list[str]]
    environment: Callable[[LaunchUnit], dict[str, str]] = lambda _unit: {}
    keep_pattern: str = ""
    """Checkpoint folders the start script thins out, for programs that keep every one."""
    keep_tracker: str = ""
    """File in the checkpoint folder that names the last finished checkpoint."""
    grows_batch: bool = False
    """Whether its files make the global batch grow as the plan has it."""
    separate_roles: bool = False
    """Whether it may generate on other nodes than it trains on; ``refusals`` says which it cannot."""

    def notes(self, unit: LaunchUnit) -> list[str]:
        """What its files cannot say of a unit."""
        found = list(self.cannot_express(unit))
        if unit.segment.batches and not self.grows_batch:
            found.append(ramp_note(unit))
        rounds, expected = unit.task.rounds, unit.task.expected_rounds_count
        if expected < rounds:
            found.append(
                f"{unit.task.name} has up to {rounds} rounds, {expected:.2f} are expected: whether another one is "
                "needed is yours to decide; these files do them all."
            )
        return found


def start_script(unit: LaunchUnit, trainer: Trainer) -> str:
    """The shell script that starts one node's processes of a unit."""
    return render(
        "start.sh.j2",
        header=header_of(unit),
        unit=unit,
        trainer=trainer,
        starter=trainer.starter(unit),
        environment=unit_environment(unit) | trainer.environment(unit),
        command=trainer.command(unit),
        start_weights=start_weights(unit),
    )


def start_weights(unit: LaunchUnit) -> str:
    """Where a unit's starting weights come from: a folder, or empty when the user has to say."""
    return f"/checkpoints/{unit.task.weights_from}" if unit.task.weights_from else ""


def ramp_note(unit: LaunchUnit) -> str:
    """How the global batch of a unit grows, where its files have the last one only."""
    steps, words = 0.0, []
    for phase in unit.segment.batches:
        steps += phase.tokens / phase.global_batch_tokens
        sequences = round(phase.global_batch_tokens / unit.segment.sequence_length)
        words.append(f"{sequences} sequences to step {unit.first_step + round(steps)}")
    return (
        f"{unit.name}: the global batch grows ({', '.join(words)}) and this program knows one batch, the last. "
        "Start each phase with its own batch from the checkpoint of the one before."
    )


def needs_weights(unit: LaunchUnit) -> bool:
    """Whether the task starts from trained weights."""
    return unit.task.kind not in ("pretrain", *NO_TRAINER)


def unit_files(unit: LaunchUnit, trainer: Trainer, folder: str = "") -> dict[str, str]:
    """Start script and trainer files of a unit under ``folder``."""
    prefix = f"{folder}/" if folder else ""
    files = {f"{prefix}{unit.name}.sh": start_script(unit, trainer)}
    return files | {f"{prefix}{name}": text for name, text in trainer.files(unit).items()}


def hand_commands(units: tuple[LaunchUnit, ...]) -> list[Command]:
    """How to start units by hand, one command per node."""
    return [
        Command(
            f"{unit.name}: on each of the {unit.nodes} nodes, with RANK 0 to {unit.nodes - 1} and "
            "the address of node 0",
            f"TRAINPLAN_NODE_RANK=RANK TRAINPLAN_MASTER_ADDR=ADDRESS bash {unit.name}.sh",
        )
        for unit in units
    ]


def exporter_of(trainer: Trainer) -> Exporter:
    """The export target that writes a trainer's files alone, to be started by hand."""

    def suited(launch: Launch) -> tuple[LaunchUnit, ...]:
        return tuple(unit for unit in launch.units if not trainer.unsuited(unit))

    def files(launch: Launch) -> dict[str, str]:
        found: dict[str, str] = {}
        for unit in suited(launch):
            found |= unit_files(unit, trainer)
        return found

    def cannot_express(launch: Launch) -> list[str]:
        units = suited(launch)
        notes = [note for unit in units for note in trainer.notes(unit)]
        notes.append(launcher_note(units))
        return list(dict.fromkeys(notes))

    return Exporter(
        name=trainer.name,
        title=trainer.title,
        checked=trainer.checked,
        files=files,
        commands=lambda launch: hand_commands(suited(launch)),
        unsuited=trainer.unsuited,
        refusals=trainer.refusals,
        cannot_express=cannot_express,
        placeholders=lambda launch: trainer_placeholders(suited(launch), (trainer,)),
        separate_roles=trainer.separate_roles,
    )


def launcher_note(units: tuple[LaunchUnit, ...]) -> str:
    """What a training program cannot do for the plan and a launcher can."""
    places = mentioned(f"{unit.segment.pool} ({unit.segment.mode})" for unit in units)
    spares = max((unit.segment.spare_nodes for unit in units), default=0)
    extra = f" and up to {spares} spare nodes" if spares else ""
    note = (
        f"Region, instance type and billing mode ({places}){extra}: a training program does not rent nodes."
    )
    if any(unit.beside for unit in units):
        return note
    return f"{note} The targets slurm, skypilot and kubernetes do, and carry these same files."


def trainer_placeholders(units: tuple[LaunchUnit, ...], trainers: tuple[Trainer, ...]) -> list[str]:
    """Environment variables the start scripts read, with what they default to."""
    found = [
        "`CHECKPOINT_DIR`: where checkpoints go, the same on every node and for every unit of a task "
        "(default `/checkpoints/TASK`).",
        "`DATA`: the training data (default `/data`).",
        "`LEARNING_RATE`: not part of a plan (default 3e-4 for pretraining, 1e-5 after it).",
    ]
    if any(needs_weights(unit) for unit in units):
        found.append("`MODEL`: starting weights of post-training tasks (default: the task they follow).")
    if any(trainer.name == "custom" for trainer in trainers):
        found.append(
            "`TRAINPLAN_COMMAND`: the program of the tasks that no training program is exported for."
        )
    return found
