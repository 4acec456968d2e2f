from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trainplan.cli import output
from trainplan.cli.progress import QUIET_FOR_S, Progress
from trainplan_models.base import InputError


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_files_are_written_in_utf_8_with_plain_line_ends(tmp_path: Path) -> None:
    paths = output.write_files(tmp_path / "a" / "b", {"x.md": "größe\n", "y.json": "{}\n"})
    assert [path.read_bytes() for path in paths] == ["größe\n".encode(), b"{}\n"]
    assert names(tmp_path / "a" / "b") == ["x.md", "y.json"]


def test_files_go_into_folders_and_scripts_can_run(tmp_path: Path) -> None:
    script, text = output.write_files(tmp_path, {"a/run.sh": "#!/bin/sh\n", "a/b/notes.md": "x\n"})
    assert (script, text) == (tmp_path / "a" / "run.sh", tmp_path / "a" / "b" / "notes.md")
    assert os.access(script, os.X_OK)
    assert not os.access(text, os.X_OK)


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (written,) = output.write_files(tmp_path, {"x": ""})
    assert written.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / "plan.json").write_text("old")
    real = os.fdopen
    calls = 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.close(arguments[0])
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(os, "fdopen", failing)
    with pytest.raises((KeyboardInterrupt, InputError)):
        output.write_files(tmp_path, {"plan.json": "new", "report.md": "new"})
    assert names(tmp_path) == ["plan.json"]
    assert (tmp_path / "plan.json").read_text() == "old"


def test_a_directory_that_is_a_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="--output"):
        output.write_files(tmp_path / "out", {"plan.json": ""})


class Stream(io.TextIOWrapper):
    """A stdout with an encoding, on a terminal or not."""

    def __init__(self, encoding: str, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        raw = self.buffer
        assert isinstance(raw, io.BytesIO)
        return raw.getvalue().decode(self.encoding)


@pytest.mark.parametrize(("encoding", "unicode"), [("utf-8", True), ("UTF8", True), ("cp1252", False)])
def test_json_survives_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, unicode: bool) -> None:
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_json({"name": "größe 模型"})
    assert json.loads(stream.text()) == {"name": "größe 模型"}
    assert ("模型" in stream.text()) is unicode


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_text_survives_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    stream = Stream(encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    output.make_streams_safe()
    output.print_text(lambda width, colour, ascii_only: f"模型 {width} {colour} {ascii_only}\n")
    assert stream.text() == "?? None False True\n"


@pytest.mark.parametrize(
    ("terminal", "no_colour", "term", "expected"),
    [
        (True, "", "xterm", True),
        (True, "1", "xterm", False),
        (True, "", "dumb", False),
        (False, "", "xterm", False),
    ],
)
def test_colour_only_where_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_colour: str, term: str, expected: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "77")
    seen: list[tuple[int | None, bool]] = []
    monkeypatch.setattr(sys, "stdout", Stream("utf-8", terminal=terminal))

    def render(width: int | None, colour: bool, _: bool) -> str:
        seen.append((width, colour))
        return ""

    output.print_text(render)
    assert seen == [(77 if terminal else None, expected)]


class Clock:
    """An event whose waiting is over at once, so many times."""

    def __init__(self, ticks: int) -> None:
        self.left = ticks
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.left -= 1
        return self.left < 0

    def set(self) -> None:
        """Nobody is waiting."""


def progress_after(ticks: int, *, terminal: bool) -> tuple[Progress, Stream, Clock]:
    stream, clock = Stream("utf-8", terminal=terminal), Clock(ticks)
    progress = Progress(stream=stream)
    progress._done = clock  # type: ignore[assignment]
    progress("solving")
    progress._tick()
    return progress, stream, clock


def test_nothing_is_printed_in_the_first_second() -> None:
    _, stream, clock = progress_after(0, terminal=False)
    assert clock.waits == [QUIET_FOR_S]
    assert stream.text() == ""


def test_a_pipe_gets_a_line_for_each_new_message_only() -> None:
    _, stream, _ = progress_after(5, terminal=False)
    assert stream.text().count("solving\n") == 1
    assert "\r" not in stream.text()


def test_a_terminal_gets_one_line_that_is_gone_at_the_end() -> None:
    progress, stream, _ = progress_after(3, terminal=True)
    assert stream.text().count("solving") == 3
    assert "\n" not in stream.text()
    progress.__exit__(None, None, None)
    last = stream.text().rsplit("\r", 2)[-2:]
    assert last[0].strip() == ""
    assert last[1] == ""


def test_quiet_progress_starts_nothing() -> None:
    stream = Stream("utf-8")
    with Progress(quiet=True, stream=stream) as progress:
        progress("solving")
    assert stream.text() == ""
