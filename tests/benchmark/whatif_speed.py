"""How long a sweep takes, and whether a process that plans for long keeps its size.

Run by hand: ``python tests/benchmark/whatif_speed.py [points] [workers]`` and
``python tests/benchmark/whatif_speed.py --memory [plans]``.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "solver"), str(ROOT / "models")]

from trainplan.sweep_points import points_of  # noqa: E402
from trainplan.whatif import CaseText, How, Job, _job, solve_point, what_if  # noqa: E402

SMALL = """
name: small
deadline: 30 days
reliability: standard
tasks:
  - name: pretrain
    kind: pretrain
    model: llama-3-8b
    tokens: 300B tokens
    sequence_length: 8192
    global_batch: 4M tokens
    dataset: {size: 1.2 TB, at: aws/us-east-1}
resources: {accelerators: [H100-SXM], clouds: [aws], billing: [on-demand, spot], max_nodes: 64}
checkpoints: {keep_last: 3, keep_every: 1 day}
people: {engineers: 2, rate: 120 USD/hour}
"""


def rss_bytes() -> int:
    """Resident memory of this process, where Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def cpu_s() -> float:
    """Processor time of this process and of those it has ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def speed(points: int, workers: int, *, promise: bool) -> None:
    """Plans a sweep over deadlines and budgets."""
    step = 10.0 / (points // 4)
    asked = points_of(
        [
            f"deadline=1d..{1.0 + step * (points // 4 - 1):.6f}d/{step:.6f}d",
            "budget=20k USD,40k USD,80k USD,160k USD",
        ]
    )
    began_cpu, began = cpu_s(), time.monotonic()
    rows = what_if(CaseText(SMALL), asked, how=How(workers=workers, promise=promise))
    wall_s = time.monotonic() - began
    states = {state: sum(row.status == state for row in rows) for state in sorted({r.status for r in rows})}
    print(f"{len(rows)} points, {workers} workers: {wall_s:.1f} s, {states}")
    if workers == 1:
        print(
            f"processor time {cpu_s() - began_cpu:.1f} s, {1e3 * (cpu_s() - began_cpu) / len(rows):.0f} ms a point"
        )


def memory(plans: int) -> None:
    """Plans one case after the other in this process and prints its size as it goes."""
    case = CaseText(SMALL)
    for number in range(plans):
        days = 1.0 + 30.0 * (number % 997) / 997.0
        (_, point) = points_of([f"deadline={days:.4f} days"])
        job = _job(case, point, None, How(promise=False))
        assert isinstance(job, Job)
        row = solve_point(job)
        assert row.status in ("ok", "infeasible"), row
        if number in (0, 100) or (number + 1) % max(plans // 10, 1) == 0:
            print(f"{number + 1:6d} plans: {rss_bytes() / 2**20:.1f} MiB", flush=True)


def main() -> None:
    """Measures what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", nargs="?", type=int, default=1000)
    parser.add_argument("workers", nargs="?", type=int, default=2)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--no-risk", action="store_true")
    given = parser.parse_args()
    if given.memory:
        memory(given.points)
    else:
        speed(given.points, given.workers, promise=not given.no_risk)


if __name__ == "__main__":
    main()
