"""What every record and every error of the product is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen pydantic record that refuses unknown keys; attribute docstrings are its documentation."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        populate_by_name=True,
        allow_inf_nan=False,
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the input, in words its author can act on."""

    message: str
    """What is wrong, with the value that was found."""
    key: str = ""
    """Dotted key as the user would write it, e.g. ``tasks[0].tokens``."""
    file: str = ""
    line: int = 0
    """1-based line in ``file``; 0 when unknown."""
    fix: str = ""
    """The right way to write it."""

    def __str__(self) -> str:
        place = ":".join(part for part in (self.file, str(self.line or "")) if part)
        head = ": ".join(part for part in (place, self.key, self.message) if part)
        return f"{head}. {self.fix}" if self.fix else head


class TrainplanError(Exception):
    """The root of every error the product raises on purpose."""

    exit_code = 1


class InputError(TrainplanError):
    """The input is wrong; ``problems`` has every mistake found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | list[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InfeasibleError(TrainplanError):
    """No plan satisfies the case; ``explanation`` says why in full, ``details`` the same for programs."""

    exit_code = 3

    def __init__(self, message: str, *, explanation: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.explanation = explanation
        self.details = details or {}


class NoAnswerError(TrainplanError):
    """The solver gave no usable answer (time limit without an incumbent, or a solver failure)."""

    exit_code = 4


class VerificationError(TrainplanError):
    """A plan recomputed in plain Python does not agree with what the solver promised."""
