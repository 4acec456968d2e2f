"""Random tests draw the same examples in every run; ``TRAINPLAN_RANDOM=1`` draws other ones each time."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("random", deadline=None)
settings.load_profile("random" if os.environ.get("TRAINPLAN_RANDOM") else "repeatable")
