"""How long programmes over calendar time take to plan: ``python tests/benchmark/calendar_speed.py [names]``.

The sources have to be on the path. Prints a line a programme: tasks, pools, windows, size of the model, time
to a verified plan (not simulated), proven gap and what it is proven over. Programmes are made by rule, so that
every run plans the same ones.
"""

from __future__ import annotations

import sys
import time

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


def programme(products: int, days: int, *, commitments: bool, steps: int, accelerators: str) -> Case:
    """Some products of four tasks each, side by side, on rented pools and one cluster that comes in steps."""
    tasks = "".join(
        PRODUCT.format(
            p=f"p{k}",
            model=MODELS[k % len(MODELS)],
            tokens=150 + 50 * (k % 3),
            sft=2 + k % 3,
            release=10 * (k % 4),
            due=days - 10 + 10 * (k % 2),
        )
        for k in range(products)
    )
    free = ", ".join(
        f"{{from: day {days * k // (steps + 1)}, nodes: {4 + 4 * (k % 3)}}}" for k in range(steps)
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
people: {{engineers: 4}}
"""
    return case_from_text(text)


PROGRAMMES = {
    "8x90": lambda: programme(2, 90, commitments=False, steps=6, accelerators="[H100-SXM, A100-SXM-80GB]"),
    "8x90-bought": lambda: programme(
        2, 90, commitments=True, steps=6, accelerators="[H100-SXM, A100-SXM-80GB]"
    ),
    "30x180": lambda: programme(8, 180, commitments=False, steps=6, accelerators="[H100-SXM]"),
}


LIMITS_S = {"8x90": 60.0, "8x90-bought": 60.0, "30x180": 120.0}


def main(names: list[str]) -> None:
    """Plans each programme once."""
    for name in names or list(PROGRAMMES):
        case = PROGRAMMES[name]()
        spec = assemble(case, builtin()).spec
        pools = len({r.pool for r in spec.resources if r.pool})
        started, cpu = time.monotonic(), time.process_time()
        found = plan(case, builtin(), time_limit_s=LIMITS_S[name], compare=False, promise=False)
        taken, cpu = time.monotonic() - started, time.process_time() - cpu
        print(
            f"{name}: {len(spec.tasks)} tasks, {pools} pools, {len(spec.windows)} windows, "
            f"{len(spec.options)} options, {found.solver.columns} columns, {found.solver.rows} rows: "
            f"{taken:.1f} s ({cpu:.1f} s CPU outside the solver), gap {found.solver.gap_frac:.3%}, "
            f"({found.solver.scope}), {found.total_usd:,.0f} USD, "
            f"day {found.finish_s / 86400.0:.1f}, {len(found.segments)} segments",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
