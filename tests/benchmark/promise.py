"""Whether plans keep the chance they promise: random cases, planned, then simulated in fresh scenarios.

    python tests/benchmark/promise.py [--cases 30] [--seed 1] [--scenarios 10000] [--json]

For every case and every wanted chance (50, 80, 95 %) the plan is run through scenarios of a seed that planning
never used. It is right when the share that ends in time and in budget is within two points of what was wanted,
or above it where no plan with that chance was found whose mean simulated cost is lower. A plan that says it cannot
promise is counted apart.

Over the chances of a case two more things are counted, which should not be: plans that are less sure than the plan
for a lower chance and do not keep their own, and plans that cost more on average than the plan that keeps a higher
one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from numpy.random import Generator, default_rng

if __name__ == "__main__":
    ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(ROOT / "models"), str(ROOT / "solver")]

from trainplan.planning import plan as make_plan
from trainplan.scenarios import for_plan
from trainplan_models import catalog
from trainplan_models.base import InfeasibleError, NoAnswerError
from trainplan_models.case import Case
from trainplan_models.plan import Plan
from trainplan_models.simulation import simulate

WANTED = (0.5, 0.8, 0.95)
NEAR_FRAC = 0.02
NOISE_FRAC = 0.005
"""Plans are chosen on other scenarios than those they are judged on."""
FRESH_SEED = 977
DAY_S = 86400.0

MODELS = ("llama-3-8b", "llama-2-7b", "llama-2-13b", "mistral-7b", "llama-2-70b")
BILLING = (("on-demand",), ("spot",), ("on-demand", "spot"), ("on-demand", "capacity-block"))
CHIPS = (("H100-SXM",), ("A100-SXM-80GB",), ("H100-SXM", "A100-SXM-80GB"))
CLOUDS = (("aws",), ("aws", "gcp"), ("nebius",), ("lambda", "aws"))


@dataclass(frozen=True, slots=True)
class Row:
    """One case at one wanted chance."""

    case: str
    wanted: float
    chance: float
    low: float
    cost_usd: float
    expected_usd: float
    """Mean over the fresh scenarios."""
    finish_days: float
    margin: float
    verdict: str
    seconds: float


def random_case(rng: Generator) -> dict[str, Any]:
    """A case without limits on time or money."""
    tasks: list[dict[str, Any]] = [
        {
            "name": "pretrain",
            "kind": "pretrain",
            "model": str(rng.choice(MODELS)),
            "tokens": f"{int(rng.integers(20, 300))}B tokens",
            "sequence_length": 4096,
            "global_batch": "4M tokens",
        }
    ]
    if rng.random() < 0.4:
        more = {"kind": "sft", "tokens": "2B tokens", "sequence_length": 4096, "global_batch": "1M tokens"}
        tasks.append({"name": "sft", "after": ["pretrain"], "rounds": int(rng.integers(1, 5)), **more})

    def one(choices: tuple[tuple[str, ...], ...]) -> list[str]:
        return list(choices[int(rng.integers(len(choices)))])

    assumptions = {"failure_profile": str(rng.choice(["standard", "llama3", "all-cause", "small-team"]))}
    if rng.random() < 0.3:
        assumptions["spot_profile"] = "stress"
    return {
        "name": f"random-{rng.integers(10**6)}",
        "tasks": tasks,
        "resources": {
            "accelerators": one(CHIPS),
            "clouds": one(CLOUDS),
            "billing": one(BILLING),
            "max_nodes": f"{int(rng.choice([8, 16, 32, 64]))} nodes",
        },
        "assumptions": assumptions,
    }


def limited(raw: dict[str, Any], rng: Generator) -> dict[str, Any] | None:
    """The case with a deadline, and sometimes a budget, that can be kept; None where nothing can run."""
    known = catalog.builtin()
    try:
        fastest = make_plan(Case.model_validate(raw | {"question": "fastest"}), known, compare=False)
    except (InfeasibleError, NoAnswerError):
        return None
    days = max(fastest.finish_s / DAY_S * rng.uniform(1.2, 3.5), 0.5)
    limits: dict[str, Any] = {"deadline": f"{days:.2f} days"}
    if rng.random() < 0.4:
        try:
            cheapest = make_plan(Case.model_validate(raw | limits), known, compare=False)
        except (InfeasibleError, NoAnswerError):
            return None
        limits["budget"] = f"{cheapest.total_usd * rng.uniform(1.1, 2.0):.0f} USD"
    return raw | limits


def verdict(plan: Plan, wanted: float, chance: float) -> str:
    """Whether a plan holds what was wanted."""
    if abs(chance - wanted) <= NEAR_FRAC:
        return "kept"
    risk = plan.risk
    if chance < wanted:
        refused = risk is not None and risk.chance_frac < wanted - NEAR_FRAC
        return "cannot, and says so" if refused else "BROKEN"
    tried = () if risk is None else risk.tried
    chosen = min(tried, key=lambda point: abs(point.cost_usd - plan.total_usd), default=None)
    usd = plan.total_usd if chosen is None or chosen.expected_usd is None else chosen.expected_usd
    cheaper = any(
        point.chance_frac >= wanted and point.expected_usd is not None and point.expected_usd < usd - 0.01
        for point in tried
    )
    return "TOO SURE" if cheaper else "kept, surer for nothing"


def measured(raw: dict[str, Any], wanted: float, scenarios: int) -> Row | None:
    """Plan a case and simulate the plan afresh."""
    known = catalog.builtin()
    case = Case.model_validate(raw | {"reliability": f"{wanted:.0%}"})
    began = time.perf_counter()
    try:
        plan = make_plan(case, known, compare=False)
    except (InfeasibleError, NoAnswerError):
        return None
    seconds = time.perf_counter() - began
    found = simulate(plan, case, known, for_plan(plan, case, known, scenarios, FRESH_SEED), FRESH_SEED)
    return Row(
        case=case.name,
        wanted=wanted,
        chance=found.p_both,
        low=found.p_both_low,
        cost_usd=plan.total_usd,
        expected_usd=found.cost_mean_usd,
        finish_days=plan.finish_s / DAY_S,
        margin=0.0 if plan.risk is None else plan.risk.margin_frac,
        verdict=verdict(plan, wanted, found.p_both),
        seconds=seconds,
    )


def rows(cases: int, seed: int, scenarios: int) -> Iterator[Row]:
    """Rows of so many feasible cases."""
    rng = default_rng(seed)
    done = 0
    while done < cases:
        raw = limited(random_case(rng), rng)
        if raw is None:
            continue
        found = [row for wanted in WANTED if (row := measured(raw, wanted, scenarios)) is not None]
        done += bool(found)
        yield from found


def between_levels(found: list[Row]) -> dict[str, list[str]]:
    """Cases in which the plans for two chances contradict each other, by more than noise."""
    contradictions: dict[str, list[str]] = {"less sure than for less": [], "dearer than for more": []}
    for lower, higher in combinations(found, 2):
        if lower.case != higher.case or lower.wanted >= higher.wanted:
            continue
        kept = higher.chance >= higher.wanted - NEAR_FRAC
        told = f"{lower.case} {lower.wanted:.0%}/{higher.wanted:.0%}"
        if not kept and higher.chance < lower.chance - NOISE_FRAC:
            contradictions["less sure than for less"].append(told)
        if kept and higher.expected_usd < lower.expected_usd * (1.0 - NOISE_FRAC):
            contradictions["dearer than for more"].append(told)
    return contradictions


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenarios", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: list[Row] = []
    for row in rows(arguments.cases, arguments.seed, arguments.scenarios):
        found.append(row)
        if not arguments.json:
            print(
                f"{row.case:<16} wanted {row.wanted:4.0%} got {row.chance:6.1%} cost {row.expected_usd:12,.0f} USD "
                f"finish {row.finish_days:6.2f} d margin {row.margin:5.3f} {row.seconds:5.1f} s  {row.verdict}",
                flush=True,
            )
    counts, levels = Counter(row.verdict for row in found), between_levels(found)
    if arguments.json:
        print(
            json.dumps(
                {"rows": [asdict(row) for row in found], "verdicts": counts, "levels": levels}, indent=1
            )
        )
    else:
        print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
        print("\n".join(f"{name}: {', '.join(cases) or 'none'}" for name, cases in levels.items()))


if __name__ == "__main__":
    main()
