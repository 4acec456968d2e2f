"""Text and files out of the command line: safe on any encoding, never half-written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainplan.report.document import Document


def make_streams_safe() -> None:
    """Let stdout and stderr replace what their encoding cannot carry instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def is_unicode(encoding: str | None) -> bool:
    """Whether an encoding carries every character."""
    return (encoding or "").lower().replace("-", "").startswith("utf")


def print_text(render: Callable[[int | None, bool, bool], str]) -> None:
    """Print a rendering made for stdout as it is: ``render(width, colour, ascii_only)``.

    Away from a terminal ``width`` is None: nothing is broken or cut.
    """
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    colour = on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    sys.stdout.write(render(width, colour, not is_unicode(sys.stdout.encoding)))


def print_document(document: Document) -> None:
    """Print a report on stdout, as wide and as colourful as stdout allows."""
    from trainplan.report import text_of

    print_text(
        lambda width, colour, ascii_only: text_of(document, width=width, colour=colour, ascii_only=ascii_only)
    )


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, escaped where stdout is not UTF-8."""
    text = json.dumps(value, indent=2, ensure_ascii=not is_unicode(sys.stdout.encoding))
    sys.stdout.write(text + "\n")


def write_files(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files (UTF-8) so that each is there whole or as it was before.

    All are written beside their places first and moved there together at the end.

    Args:
        directory: made if absent.
        texts: content by path below it; what begins like a script can be executed.

    Returns:
        The paths written, in the order of ``texts``.

    Raises:
        InputError: the directory cannot be made or written to.
    """
    from trainplan_models.base import InputError, Problem

    waiting: dict[Path, Path] = {}
    try:
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            waiting[Path(temporary)] = path
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            Path(temporary).chmod((0o777 if text.startswith("#!") else 0o666) & ~_umask())
        for temporary_path, path in waiting.items():
            temporary_path.replace(path)
    except OSError as error:
        raise InputError(
            Problem(
                message=f"cannot write to {directory}: {error.strerror or error}",
                key="--output",
                fix="Name a directory that can be written to",
            )
        ) from error
    finally:
        for temporary_path in waiting:
            with contextlib.suppress(OSError):
                temporary_path.unlink(missing_ok=True)
    return list(waiting.values())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
