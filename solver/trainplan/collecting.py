"""Looking for garbage less often while a plan is made, and not at all when the program ends."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 100_000
"""New objects between two looks; Python's own few hundred suit programs whose objects die young."""


@contextmanager
def fewer_collections() -> Iterator[None]:
    """For a while, or as a decorator: models are many objects that live on, in which nothing is found.

    Python's own rhythm went over them again and again, which took a sixth of the time of a small plan.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def no_collection_at_exit() -> None:
    """Lets the system take back the memory of this process when it ends.

    Python goes over all objects once more before it ends, which took 0.2 s after a small plan.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
