"""Where each key of a case was written, so that a mistake found late can still name its file and line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
"""The way to a value in nested mappings and lists: ``("tasks", 0, "tokens")``."""


def dotted(path: Path) -> str:
    """A path as its author would write it: ``tasks[0].tokens``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def path_of(key: str) -> Path:
    """The path of a dotted key, the inverse of ``dotted`` for keys without dots of their own."""
    return tuple(int(index) if index else name for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", key))


@dataclass(frozen=True, slots=True)
class Places:
    """File and line of the keys of a case.

    Any two are equal: where a case was written does not make it another case.
    """

    file: str = field(default="", compare=False)
    lines: dict[Path, tuple[str, int]] = field(default_factory=dict, compare=False)
    """(file, 1-based line) of a key or list item; line 0 where there is none."""

    def find(self, path: Path) -> tuple[str, int]:
        """File and line of a key, or of the nearest one around it."""
        for length in range(len(path), 0, -1):
            if place := self.lines.get(path[:length]):
                return place
        return self.file, 0

    def rename(self, old: Path, new: Path) -> None:
        """Let what stands under one key be found under another as well."""
        for path, place in list(self.lines.items()):
            if path[: len(old)] == old:
                self.lines.setdefault(new + path[len(old) :], place)
