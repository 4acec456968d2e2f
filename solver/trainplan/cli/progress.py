"""Signs of life on stderr, only when a command takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

QUIET_FOR_S = 1.0
"""Nothing is printed before this."""

LINE_EVERY_S = 2.0
"""Away from a terminal, at most one line in this time."""


class Progress:
    """A context manager; call it with what is being done.

    On a terminal one line is rewritten, and gone at the end. Elsewhere lines are added, at most one every
    two seconds.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._on_terminal = self._stream.isatty()
        self._started = time.monotonic()
        self._message = ""
        self._printed_at = float("-inf")
        self._drawn = 0
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._ticker.ident is not None:
            self._ticker.join()
        self._erase()

    def __call__(self, message: str) -> None:
        """Say what is being done now; shown when it is time."""
        with self._lock:
            self._message = message

    def _tick(self) -> None:
        shown = ""
        wait_s = QUIET_FOR_S
        while not self._done.wait(wait_s):
            wait_s = 0.25 if self._on_terminal else LINE_EVERY_S
            with self._lock:
                message = self._message
            if self._on_terminal or message != shown:
                self._show(message)
                shown = message

    def _show(self, message: str) -> None:
        line = f"{time.monotonic() - self._started:5.0f} s  {message or 'working'}"
        if self._on_terminal:
            self._stream.write("\r" + line.ljust(self._drawn))
            self._drawn = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()
