"""How long programmes over calendar time take to plan.

``python tests/benchmark/calendar_speed.py [names] [--seed N ...]``; the sources have to be on the path. Prints a
line a programme: tasks, pools, windows, size of the model, time to a verified plan (not simulated), proven gap
and what it is proven over. Programmes are made by rule, so that every run plans the same ones; a seed other than
0 draws models, amounts of work, dates, cluster and people anew.
"""

from __future__ import annotations

import argparse
import resource
import time
from random import Random

from trainplan.assembly import assemble
from trainplan.planning import plan
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

PRODUCT = """
  - {{name: {p}-pretrain, kind: pretrain, model: {model}, tokens: {tokens}B tokens, sequence_length: 8192,
     global_batch: 4M tokens, dataset: {{size: 2 TB, at: aws/us-east-1}}, release: {release} days}}
  - {{name: {p}-sft, kind: sft, tokens: {sft}B tokens, sequence_length: 8192, rounds: 3, after: [{p}-pretrain]}}
  - {{name: {p}-preference, kind: preference, tokens: 1B tokens, sequence_length: 4096, after: [{p}-sft]}}
  - {{name: {p}-evaluate, kind: evaluate, accelerator_hours: 400 accelerator-hours, after: [{p}-preference],
     due: {due} days}}
"""
MODELS = ("llama-3-8b", "qwen2.5-32b", "qwen2.5-14b", "llama-3-70b")


def product(number: int, days: int, pick: Random | None) -> str:
    """The tasks of a product, by rule or drawn."""
    drawn = {
        "model": MODELS[number % len(MODELS)],
        "tokens": 150 + 50 * (number % 3),
        "sft": 2 + number % 3,
        "release": 10 * (number % 4),
        "due": days - 10 + 10 * (number % 2),
    }
    if pick is not None:
        drawn |= {
            "model": pick.choice(MODELS),
            "tokens": pick.randrange(50, 400, 10),
            "sft": pick.randrange(1, 8),
            "release": pick.randrange(0, days // 3),
            "due": days - pick.randrange(0, 20),
        }
    return PRODUCT.format(p=f"p{number}", **drawn)


def programme(
    products: int, days: int, seed: int, *, commitments: bool, steps: int, accelerators: str
) -> Case:
    """Some products of four tasks each, side by side, on rented pools and one cluster that comes in steps."""
    pick = Random(seed) if seed else None
    tasks = "".join(product(k, days, pick) for k in range(products))
    counts = [4 + 4 * (k % 3) if pick is None else pick.randrange(0, 17, 2) for k in range(steps)]
    engineers = 4 if pick is None else pick.choice([1, 2, 4, 8])
    free = ", ".join(
        f"{{from: day {days * k // (steps + 1)}, nodes: {nodes}}}" for k, nodes in enumerate(counts)
    )
    billing = "[on-demand, spot, capacity-block, reserved-1y]" if commitments else "[on-demand, spot]"
    text = f"""
name: programme
question: cheapest
deadline: {days} days
tasks:{tasks}
resources:
  accelerators: {accelerators}
  clouds: [aws, gcp, nebius, lambda]
  billing: {billing}
  max_nodes: 64
  owned:
    - {{name: dc1, accelerator: A100-SXM-80GB, nodes: 16, electricity: 0.11 USD/kWh, free: [{free}]}}
people: {{engineers: {engineers}}}
"""
    return case_from_text(text)


CHIPS = "[H100-SXM, A100-SXM-80GB]"
PROGRAMMES = {
    "8x90": lambda seed: programme(2, 90, seed, commitments=False, steps=6, accelerators=CHIPS),
    "8x90-bought": lambda seed: programme(2, 90, seed, commitments=True, steps=6, accelerators=CHIPS),
    "30x180": lambda seed: programme(8, 180, seed, commitments=False, steps=6, accelerators="[H100-SXM]"),
}


LIMITS_S = {"8x90": 60.0, "8x90-bought": 60.0, "30x180": 240.0}


def cpu_s() -> float:
    """Processor time of this process and of the solver's, as far as they have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(name: str, seed: int, limit_s: float) -> None:
    """Plans one programme."""
    case = PROGRAMMES[name](seed)
    spec = assemble(case, builtin()).spec
    pools = len({r.pool for r in spec.resources if r.pool})
    started, cpu = time.monotonic(), cpu_s()
    found = plan(case, builtin(), time_limit_s=limit_s, compare=False, promise=False)
    taken, cpu = time.monotonic() - started, cpu_s() - cpu
    print(
        f"{name} seed {seed}: {len(spec.tasks)} tasks, {pools} pools, {len(spec.windows)} windows, "
        f"{len(spec.options)} options, {found.solver.columns} columns, {found.solver.rows} rows: "
        f"{taken:.1f} s ({cpu:.1f} s CPU), gap {found.solver.gap_frac:.3%}, "
        f"({found.solver.scope}), {found.total_usd:,.0f} USD, "
        f"day {found.finish_s / 86400.0:.1f}, {len(found.segments)} segments",
        flush=True,
    )


def main() -> None:
    """Plans each programme once for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(PROGRAMMES))
    parser.add_argument("--seed", type=int, nargs="*", default=[0])
    parser.add_argument("--time-limit", type=float, help="in seconds, in place of the programme's own")
    asked = parser.parse_args()
    for name in asked.names or list(PROGRAMMES):
        for seed in asked.seed:
            measure(name, seed, asked.time_limit or LIMITS_S[name])


if __name__ == "__main__":
    main()
