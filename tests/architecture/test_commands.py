"""Every command and option explains itself, and the README knows every command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trainplan.cli import app

README = Path(__file__).parents[2] / "README.md"


def commands(command: Any = None, path: str = "trainplan") -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its words."""
    command = get_command(app) if command is None else command
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")
    else:
        yield path, command


def documented() -> set[str]:
    """The commands in the first column of the README's table; ``a|b`` stands for both."""
    rows = re.findall(r"^\| `(trainplan [^`]+)`", README.read_text(encoding="utf-8"), re.MULTILINE)
    words = set()
    for row in rows:
        plain = [
            word for word in row.replace("\\|", "|").split() if not word.isupper() and word[0] not in "-["
        ]
        head, last = " ".join(plain[:-1]), plain[-1]
        words |= {f"{head} {choice}" for choice in last.split("|")}
    return words


def test_the_readme_has_every_command_and_no_other() -> None:
    there = {path for path, _ in commands()}
    known = documented()
    groups = {path.rsplit(" ", 1)[0] for path in there}
    choices = {path for path in known if path.rsplit(" ", 1)[0] in there}
    assert there - known - {path.rsplit(" ", 1)[0] for path in choices} == set()
    assert known - there - choices - groups == set()


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda value: str(value))
def test_every_command_and_option_has_help(path: str, command: Any) -> None:
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path}: {parameter.name}"


def test_every_option_in_the_readme_exists() -> None:
    text = README.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"```sh.*?```", "", text, flags=re.DOTALL)))
    there = {o for _, command in commands() for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert named - there - {"--help"} == set()
