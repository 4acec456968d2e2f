"""The rows and charges of every block of the model, held against files.

Each file has what one block adds to the model of a small problem: its constraints, and as objective the
money it enters into the ledger (for the last block, the goal). ``TRAINPLAN_REGOLD=1`` writes the files anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pyomo.environ import ConcreteModel, Constraint, Objective

from trainplan import formulation, problem
from trainplan.formulation import BLOCKS
from trainplan.formulation.context import Context
from trainplan.inputs import scale
from trainplan.problem import (
    DatasetChoice,
    Instead,
    Option,
    ProblemSpec,
    Product,
    Recourse,
    Resource,
    SoftLimit,
    TaskSpec,
)

REGOLD = os.environ.get("TRAINPLAN_REGOLD") == "1"
GOLDEN = Path(__file__).parent.parent / "golden" / "lp"
SOURCES = Path(formulation.__file__).parent
DAY_WINDOWS = ((0.0, 10.0), (10.0, 20.0), (20.0, 40.0))


def option(task: int, resource: int = 0, *, nodes: int = 2, region: int = 0, **more: Any) -> Option:
    """20 days of work, 1 to set up, 100 USD a day."""
    plain = Option(task, resource, region, nodes, work_days=20.0, setup_days=1.0, daily=(("compute", 100.0),))
    return replace(plain, key=f"{task}-{resource}-{nodes}-{region}", **more)


def spec(count: int, options: tuple[Option, ...], **more: Any) -> ProblemSpec:
    """Tasks side by side on one resource without limits, in three windows."""
    plain = ProblemSpec(
        tasks=tuple(TaskSpec(name) for name in ("a", "b", "c")[:count]),
        options=options,
        resources=(Resource("on-demand", "pool", "on-demand", (inf, inf, inf)),),
        regions=("here", "there", "elsewhere"),
        windows=DAY_WINDOWS,
    )
    return replace(plain, **more)


def limited(nodes: tuple[float, ...], name: str = "owned", **more: Any) -> Resource:
    return Resource(name, f"pool-{name}", name, nodes, **more)


CHAIN = (TaskSpec("a", scalable=True), TaskSpec("b", (0,)), TaskSpec("c", (1,), due_days=30.0))
BOUGHT = tuple(
    limited((0.0, 0.0, 0.0), name, committed=True, unusable_tail_days=0.5, latest_start_days=3.0)
    for name in ("reserved", "capacity-block")
)
SPECS: dict[str, ProblemSpec] = {
    "selection": spec(2, (option(0), option(0, nodes=4, work_days=11.0)), windows=DAY_WINDOWS[:2]),
    "schedule": spec(
        2, (option(0), option(0, nodes=4), option(1)), tasks=(TaskSpec("a"), TaskSpec("b", (0,)))
    ),
    "schedule-stretched": spec(2, (option(0), option(1)), tasks=CHAIN[:2], windows=DAY_WINDOWS[:2]),
    "commitments": spec(
        1,
        (option(0), option(0, 1), option(0, 2), option(0, 3, region=1)),
        resources=(*spec(1, ()).resources, *BOUGHT, limited((inf, inf, inf), "spot")),
        products=(
            Product(1, 7.0, 70.0, most=4),
            Product(1, 14.0, 120.0, most=4),
            Product(2, 3.0, 40.0, most=2),
        ),
        windows=DAY_WINDOWS[:2],
    ),
    "capacity": spec(
        3,
        (option(0), option(1), option(2), option(2, 1, nodes=4)),
        resources=(limited((3.0, 4.0, 9.0)), BOUGHT[0]),
        products=(Product(1, 7.0, 70.0, most=4),),
        windows=DAY_WINDOWS[:1],
        max_nodes=5.0,
    ),
    "capacity-wide": spec(
        3,
        tuple(map(option, range(3))),
        tasks=(*CHAIN[:2], TaskSpec("c")),
        resources=(limited((3.0, 4.0, 9.0)),),
        windows=DAY_WINDOWS[:2],
        max_nodes=3.0,
    ),
    "softened": spec(
        2,
        (option(0), option(1, nodes=8)),
        soft_limits=(
            SoftLimit("resources.quotas", 4.0, "nodes", {0: 2.0, 1: 8.0}),
            SoftLimit("tasks.b.nodes", 4.0, "nodes", {1: 8.0}, shared=False, windows=(1,)),
        ),
    ),
    "placement": spec(
        2,
        tuple(option(0, region=r) for r in range(3)) + (option(1, region=0), option(1, region=1)),
        tasks=(TaskSpec("a"), TaskSpec("b", (0,))),
        staging_usd={(0, 1): 30.0},
        move_usd={(0, 0, 1): 20.0, (0, 1, 0): 25.0},
        handover_usd={(0, 1, 0, 1): 10.0},
        windows=DAY_WINDOWS[:2],
    ),
    "storage": spec(
        1,
        (option(0), option(0, region=1)),
        datasets=(
            DatasetChoice(0, 0, "hot", usd_per_day=9.0, min_days=0.0),
            DatasetChoice(0, 0, "cold", usd_per_day=2.0, min_days=90.0, once_usd=5.0, read_usd=40.0),
            DatasetChoice(0, 1, "cold", usd_per_day=3.0, min_days=30.0),
        ),
        windows=DAY_WINDOWS[:1],
    ),
    "billing": spec(
        1,
        (
            option(0, once=(("migration", 60.0),), cloud="one"),
            option(0, 1, accelerator_hours_per_day=192.0, cloud="two"),
        ),
        resources=(*spec(1, ()).resources, limited((8.0, 8.0, 8.0), "grant", grant_hours=1000.0)),
        cloud_once_usd={"two": 75.0},
        windows=DAY_WINDOWS[:2],
    ),
    "billing-price-change": spec(
        1,
        (option(0, daily=(("compute", 100.0), ("monitoring", 4.0))),),
        resources=(limited((inf, inf, inf), "on-demand", price_factor=(1.0, 1.0, 0.6)),),
    ),
    "commitments-price-change": spec(
        1,
        (option(0, 1),),
        resources=(*spec(1, ()).resources, replace(BOUGHT[0], latest_start_days=20.0)),
        products=(
            Product(1, 7.0, 70.0, most=4, last_day=9.0),
            Product(1, 7.0, 50.0, most=4, first_day=9.5),
        ),
        windows=DAY_WINDOWS[:1],
    ),
    "commitments-several": spec(
        1,
        (option(0, 1),),
        resources=(*spec(1, ()).resources, replace(BOUGHT[0], most_at_once_nodes=5.0)),
        products=tuple(Product(1, 7.0, 70.0, most=4, purchase=number) for number in range(2)),
        windows=DAY_WINDOWS[:2],
    ),
    "programme": spec(
        1,
        (option(0),),
        programme_daily=(("people", 50.0), ("security", 5.0)),
        programme_once=(("security", 40.0),),
        delay_usd_per_day=500.0,
        delay_after_days=15.0,
    ),
    "tightening": spec(
        2,
        (option(0), option(1), option(0, 1)),
        tasks=(TaskSpec("a"), TaskSpec("b", release_days=10.0)),
        resources=(limited((3.0, 2.0, 4.0)), BOUGHT[0]),
        products=(Product(1, 7.0, 70.0, most=4),),
        max_nodes=3.0,
    ),
    "tightening-chain": spec(3, tuple(map(option, range(3))), tasks=CHAIN),
    "exclusion": spec(
        3,
        (option(0), option(0, nodes=4), option(1, 1), option(2), option(2, 1, nodes=3)),
        tasks=(TaskSpec("a"), TaskSpec("b", (0,)), TaskSpec("c", release_days=10.0)),
        resources=(*spec(1, ()).resources, limited((3.0, 2.0, 4.0))),
        max_nodes=5.0,
    ),
    "recourse": spec(
        2,
        (option(0), option(0, 1), option(1)),
        tasks=(TaskSpec("a"), TaskSpec("b", (0,), due_days=15.0)),
        resources=(limited((inf, inf), "spot"), BOUGHT[0]),
        products=(Product(1, 7.0, 70.0, most=4),),
        windows=DAY_WINDOWS[:2],
        programme_daily=(("people", 50.0),),
        delay_usd_per_day=500.0,
        delay_after_days=15.0,
        deadline_days=18.0,
        budget_usd=5000.0,
        recourse=Recourse(
            weight=(0.75, 0.25),
            time_factor={0: (0.9, 1.5), 1: (1.0, 1.25), 2: (1.0, 1.2)},
            usd_factor={0: (1.0, 1.1), 1: (1.0, 1.0), 2: (1.0, 1.0)},
            wait_days={0: (0.0, 2.0)},
            instead={0: Instead((18.0, 22.0), 300.0)},
            overrun_usd={1: 60.0},
            miss_frac=0.2,
            miss_usd=9000.0,
        ),
    ),
    "goals": spec(
        1,
        (option(0),),
        tasks=(TaskSpec("a", due_days=25.0, scalable=True),),
        deadline_days=28.0,
        budget_usd=5000.0,
        programme_once=(("security", 40.0),),
    ),
}
LOOSE = {"loose": (1, 2, 3)}
"""Options without whole numbers."""
SPECS["loose"] = spec(
    2,
    (
        option(0),
        option(0, nodes=4, once=(("migration", 60.0),), cloud="one"),
        option(0, region=1),
        option(1, 1, work_days=30.0),
    ),
    tasks=(TaskSpec("a"), TaskSpec("b", (0,), scalable=True)),
    resources=(*spec(1, ()).resources, limited((inf, inf), "spot", price_factor=(1.0, 0.6))),
    windows=DAY_WINDOWS[:2],
    cloud_once_usd={"one": 75.0},
    question="most-tokens",
)
SPECS["recourse-turns"] = spec(
    2,
    (option(0), option(1, 1)),
    resources=(limited((inf,), "spot"), limited((inf,), "on-demand")),
    windows=((0.0, 60.0),),
    max_nodes=3.0,
    deadline_days=60.0,
    recourse=Recourse(
        weight=(0.5, 0.5),
        time_factor={0: (0.9, 1.5), 1: (1.0, 1.2)},
        usd_factor={0: (1.0, 1.1), 1: (1.0, 1.0)},
        instead={0: Instead((18.0, 22.0), 300.0)},
        miss_frac=0.5,
    ),
)
SPECS["recourse-turns-later"] = replace(
    SPECS["recourse-turns"],
    tasks=(TaskSpec("a"), TaskSpec("b", (0,)), TaskSpec("c")),
    options=(option(0), option(1, 1), option(2)),
    resources=(limited((inf, inf, inf), "spot"), limited((inf, inf, inf), "on-demand")),
    windows=((0.0, 20.0), (20.0, 40.0), (40.0, 60.0)),
    recourse=Recourse(
        weight=(1.0,),
        time_factor={0: (1.1,), 1: (1.2,), 2: (1.3,)},
        usd_factor={0: (1.0,), 1: (1.0,), 2: (1.0,)},
        wait_days={},
        instead={},
        miss_frac=0.5,
    ),
)
TWICE = tuple(Product(1, 7.0, 70.0, most=4, purchase=number) for number in range(2))
SPECS |= {
    "capacity-several": replace(SPECS["capacity"], products=TWICE),
    "capacity-several-wide": replace(
        SPECS["capacity-wide"],
        options=(option(0, 1), option(1, 1), option(2, 1)),
        resources=(SPECS["capacity-wide"].resources[0], BOUGHT[0]),
        products=TWICE,
        windows=DAY_WINDOWS[:1],
    ),
    "selection-stretched": replace(SPECS["goals"], question="most-tokens"),
    "goals-fastest": replace(SPECS["goals"], question="fastest"),
    "goals-most-tokens": replace(SPECS["goals"], question="most-tokens"),
    "goals-in-scenarios": replace(SPECS["recourse"], question="fastest"),
}
Block = Callable[[Context], None]


def block_name(block: Block) -> str:
    """Module of a block, with its function where there are more than one."""
    function = "" if block.__name__ == "add" else f".{block.__name__}"
    return block.__module__.rsplit(".", 1)[1] + function


def rows(m: ConcreteModel) -> list[Any]:
    return list(m.component_data_objects(Constraint, active=True))


def added_by(module: str, inputs_of: ProblemSpec, loose: tuple[int, ...]) -> ConcreteModel:
    """The model with only the rows of one module's blocks, and their charges as objective."""
    whole = sorted(set(range(len(inputs_of.options))) - set(loose))
    ctx = Context(scale(inputs_of, whole, loose))
    charges: list[Any] = []
    for block in BLOCKS:
        before, ledger = {id(row) for row in rows(ctx.m)}, len(ctx.ledger)
        block(ctx)
        if block_name(block).split(".")[0] == module:
            charges += [charge.amount for charge in ctx.ledger[ledger:]]
        else:
            for row in rows(ctx.m):
                if id(row) not in before:
                    row.deactivate()
    if module != "goals":
        ctx.m.o_goal.deactivate()
        ctx.m.o_ledger = Objective(expr=sum(charges))
    return ctx.m


def normalised(text: str) -> str:
    """An LP file without comments, numbers to ten digits."""
    lines = [line.rstrip() for line in re.sub(r"\\\*.*?\*\\", "", text, flags=re.S).splitlines()]
    number = re.compile(r"(?<![\w.(])[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(?![\w(])")
    tidy = (number.sub(lambda found: f"{float(found.group()):+.10g}", line) for line in lines if line)
    return "\n".join(tidy) + "\n"


def lp_of(name: str, tmp_path: Path) -> str:
    path = tmp_path / "model.lp"
    added_by(name.split("-")[0], SPECS[name], LOOSE.get(name, ())).write(
        str(path), io_options={"symbolic_solver_labels": True}
    )
    return normalised(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SPECS)
def test_a_block_adds_the_rows_of_its_golden_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith("-wide"):
        monkeypatch.setattr(problem, "MOST_GROUPS", 0)
    text, golden = lp_of(name, tmp_path), GOLDEN / f"{name}.lp"
    if REGOLD:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_block_and_every_constraint_has_a_golden_file() -> None:
    assert {block_name(block).split(".")[0] for block in BLOCKS} == {name.split("-")[0] for name in SPECS}
    assert {path.stem for path in GOLDEN.glob("*.lp")} == set(SPECS)
    text = "\n".join(path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.lp"))
    told = set(re.findall(r"\bc_[elu]_(c_[a-z_]+?)[_(]*(?:\(|_?:)", text))
    declared = set()
    for source in SOURCES.glob("*.py"):
        declared |= set(re.findall(r"\bm\.(c_\w+) = ", source.read_text(encoding="utf-8")))
    assert declared - told == set()


def test_a_changed_coefficient_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dearer = replace(SPECS["billing"], cloud_once_usd={"two": 76.0})
    monkeypatch.setitem(SPECS, "billing", dearer)
    assert lp_of("billing", tmp_path) != (GOLDEN / "billing.lp").read_text(encoding="utf-8")
