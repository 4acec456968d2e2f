"""Candidates worked out once and shared by cases that need the same ones.

What a candidate depends on is its key: the whole training setup, the chip, the machine and the node
counts. Deadlines, budgets, prices and the throughput factor are not in it, so a sweep over them screens
layouts once; a case in which anything else differs has another key, and nothing stale can be found.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from trainplan.candidates import Screened, screen
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.workload import TrainSetup

MOST_ENTRIES = 256
"""Kinds of machine times tasks that are remembered, the latest used first; some 100 kB each at most."""

Key = tuple[TrainSetup, Accelerator, NodeType, tuple[int, ...]]


class CandidateCache:
    """Remembers what ``screen`` found, by everything that it depends on."""

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        self._most = most_entries
        self._known: OrderedDict[Key, Screened] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def screen(
        self,
        setup: TrainSetup,
        accelerator: Accelerator,
        node: NodeType,
        counts: Sequence[int],
        factor: float = 1.0,
    ) -> Screened:
        """As ``candidates.screen``, worked out the first time only."""
        key = (setup, accelerator, node, tuple(counts))
        found = self._known.get(key)
        if found is None:
            self.misses += 1
            found = screen(setup, accelerator, node, counts)
            self._known[key] = found
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self.hits += 1
            self._known.move_to_end(key)
        # The counter is the caller's to add to; the candidates are frozen.
        return replace(_faster(found, factor), removed=Counter(found.removed))


def _faster(found: Screened, factor: float) -> Screened:
    """The same layouts with every throughput multiplied; which is the fastest does not change."""
    if factor == 1.0:
        return found
    candidates = tuple(
        replace(
            candidate,
            step_s=candidate.step_s / factor,
            tokens_per_s=candidate.tokens_per_s * factor,
            mfu_frac=candidate.mfu_frac * factor,
        )
        for candidate in found.candidates
    )
    return replace(found, candidates=candidates)
