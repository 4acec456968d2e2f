"""Random small problems with a few of everything, one per seed."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf
from random import Random

from trainplan.problem import Beside, DatasetChoice, Option, ProblemSpec, Product, Resource, TaskSpec

MOST_PAIRS = {1: 9, 2: 5, 3: 4}
"""(option, window) pairs of a task, by number of tasks: what a search can go through."""
RATE_USD = {
    "on-demand": 97.0,
    "spot": 38.0,
    "owned": 7.0,
    "grant": 1.5,
    "reserved": 0.0,
    "capacity-block": 0.0,
}
"""Price of a node-day by billing mode."""
QUESTIONS = ("cheapest", "fastest", "most-tokens")


def random_problem(seed: int, questions: tuple[str, ...] = QUESTIONS) -> ProblemSpec:
    """The problem of a seed."""
    return _problem(Random(seed), questions, tasks=0)


def crowded_problem(seed: int, questions: tuple[str, ...] = QUESTIONS) -> ProblemSpec:
    """A problem of one task with long setups, so that it matters what runs on, and more to buy.

    A window may be too short to set up in.
    """
    pick = Random(seed)
    lengths = [pick.choice([0.1, 1.0, 2.0, 4.0]) for _ in range(3)]
    spec = _problem(pick, questions, tasks=1, lengths=lengths, modes=("reserved", "capacity-block"))
    long = tuple(replace(o, setup_days=round(o.work_days * pick.uniform(0.05, 0.4), 2)) for o in spec.options)
    return replace(spec, options=long, datasets=(), deadline_days=spec.deadline_days * 1.3)


def repeated_problem(seed: int, questions: tuple[str, ...] = ("cheapest", "fastest")) -> ProblemSpec:
    """A problem of one or two tasks on nodes that can be bought twice, or rented at a higher price."""
    pick = Random(seed)
    lengths = [pick.choice([1.0, 2.0, 4.0]) for _ in range(2)]
    spec = _problem(pick, questions, tasks=pick.choice([1, 2]), lengths=lengths)
    spans, days = spec.windows, spec.windows[-1][1]
    bought = replace(
        _resource(pick, "capacity-block", len(spans)),
        latest_start_days=pick.choice([2.0, 5.0, inf]),
        most_at_once_nodes=pick.choice([inf, 2.0, 3.0]),
        frozen=(),
    )
    rented = Resource("on-demand", "pool", "on-demand", (inf,) * len(spans))
    options: list[Option] = []
    for number in range(len(spec.tasks)):
        (made,) = _options(pick, number, (bought,), [0], len(spans), len(spans))
        made = replace(made, nodes=min(made.nodes, 2), work_days=round(pick.uniform(0.2, 0.7) * days, 2))
        dear = replace(made, resource=1, daily=(("compute", 97.0 * made.nodes),), key=f"{number}-rented")
        # A search through both ways of both tasks would take minutes.
        options += [made, *pick.choice([(dear,), ()] if number == 0 else [()])]
    once = _products(pick, 0, 0.4 * days)[:1]
    return replace(
        spec,
        tasks=tuple(replace(task, due_days=inf, release_days=0.0) for task in spec.tasks),
        options=tuple(replace(o, region=0) for o in options),
        resources=(bought, rented),
        products=tuple(replace(p, purchase=number) for number in range(2) for p in once),
        regions=("here",),
        datasets=(),
        deadline_days=inf,
        budget_usd=inf,
    )


def _problem(
    pick: Random,
    questions: tuple[str, ...],
    tasks: int,
    lengths: list[float] | None = None,
    modes: tuple[str, ...] = (),
) -> ProblemSpec:
    lengths = lengths or [pick.choice([1.0, 2.0, 4.0]) for _ in range(pick.choice([1, 2, 3]))]
    regions = pick.choice([1, 2])
    others = sorted(set(RATE_USD) - set(modes))
    modes = (*modes, *pick.sample(others, 1 if modes else pick.choice([2, 3])))
    resources = tuple(_resource(pick, mode, len(lengths)) for mode in modes)
    region_of = [number % regions for number, _ in enumerate(resources)]
    count = tasks or pick.choice([1, 2, 2, 3])
    ways = [_options(pick, t, resources, region_of, len(lengths), MOST_PAIRS[count]) for t in range(count)]
    usd = sum(min(o.work_days * o.daily_usd for o in way) for way in ways)
    days = sum(min(o.work_days + o.setup_days for o in way) for way in ways)
    day = days * pick.choice([1.2, 1.7, 2.5]) / sum(lengths)
    ends = [round(day * sum(lengths[: i + 1]), 2) for i in range(len(lengths))]
    spans = tuple(zip([0.0, *ends], ends, strict=False))
    spec = ProblemSpec(
        tasks=tuple(_task(pick, number, spans) for number in range(count)),
        options=tuple(option for way in ways for option in way),
        resources=resources,
        regions=tuple(f"region-{r}" for r in range(regions)),
        windows=spans,
        products=tuple(
            p for r, one in enumerate(resources) if one.committed for p in _products(pick, r, days)
        ),
        programme_daily=pick.choice([(), (("operations and people", 55.0),)]),
        programme_once=pick.choice([(), (("security", 40.0),)]),
        cloud_once_usd=pick.choice([{}, {"spot": 90.0, "on-demand": 25.0}]),
        delay_usd_per_day=pick.choice([0.0, 0.0, 180.0]),
        delay_after_days=pick.choice([inf, 0.3 * ends[-1]]),
        deadline_days=days * pick.choice([inf, inf, inf, 2.0, 1.5, 1.2, 1.0]),
        budget_usd=(usd + 300.0) * pick.choice([inf, inf, inf, inf, 6.0, 3.0, 1.5]),
        max_nodes=pick.choice([inf, inf, 6.0, 4.0]),
        question=pick.choice(questions),
    )
    return _with_pools(pick, _with_prices(pick, _with_traffic(pick, spec)))


def _with_pools(pick: Random, spec: ProblemSpec) -> ProblemSpec:
    """Some options take nodes of another resource of their region too, or more of their own."""

    def widened(option: Option) -> Option:
        here = [r for r, _ in enumerate(spec.resources) if r % len(spec.regions) == option.region]
        if pick.random() < 0.7:
            return option
        other, nodes = pick.choice(here), pick.choice([1, 2])
        usd = round(RATE_USD[spec.resources[other].mode] * nodes * pick.uniform(0.6, 1.1), 2)
        daily = (("compute", usd), *pick.choice([(), (("monitoring", 3.0 * nodes),)]))
        faster = round(option.work_days * pick.uniform(0.3, 0.9), 3)
        return replace(option, work_days=faster, beside=(Beside(other, nodes, daily, nodes * 192.0),))

    if pick.random() < 0.6:
        return spec
    return replace(spec, options=tuple(map(widened, spec.options)))


def _with_prices(pick: Random, spec: ProblemSpec) -> ProblemSpec:
    """Prices that change from one window to the next, or with the day on which a purchase begins."""

    def changed(one: Resource) -> Resource:
        factors = tuple(pick.choice([1.0, 1.0, 0.55, 0.8, 1.6]) for _ in spec.windows)
        steps = not one.committed and len(factors) > 1 and pick.random() < 0.3
        return replace(one, price_factor=factors) if steps else one

    products: list[Product] = []
    for one in spec.products:
        if pick.random() < 0.2:
            day = pick.choice([0.5, 1.0, 2.5])
            later = round(one.usd_per_node * pick.choice([0.5, 0.9, 1.3]), 2)
            products.append(replace(one, last_day=ceil(day) - 1.0))
            products.append(replace(one, first_day=day, usd_per_node=later))
        else:
            products.append(one)
    return replace(spec, resources=tuple(map(changed, spec.resources)), products=tuple(products))


def _task(pick: Random, number: int, windows: tuple[tuple[float, float], ...]) -> TaskSpec:
    return TaskSpec(
        name=f"task-{number}",
        predecessors=tuple(p for p in range(number) if pick.random() < 0.6),
        release_days=pick.choice([0.0] * 9 + [windows[-1][0]]),
        due_days=pick.choice([inf] * 8 + [0.7 * windows[-1][1]]),
        scalable=pick.random() < (0.9 if number == 0 else 0.4),
    )


def _resource(pick: Random, mode: str, windows: int) -> Resource:
    held = {
        "on-demand": [inf] * windows,
        "spot": [pick.choice([0.0, 2.0, 4.0, 6.0]) for _ in range(windows)],
        "owned": [pick.choice([0.0, 2.0, 4.0, 6.0]) for _ in range(windows)],
        "grant": [4.0] * windows,
        "reserved": [0.0] * windows,
        "capacity-block": [0.0] * windows,
    }[mode]
    return Resource(
        name=mode,
        pool=f"pool-{mode}",
        mode=mode,
        held_nodes=tuple(held),
        committed=RATE_USD[mode] == 0.0,
        usd_per_node_day=30.0 if RATE_USD[mode] == 0.0 else 0.0,
        grant_hours=pick.choice([0.0, 1500.0, 4000.0, 9000.0]) if mode == "grant" else inf,
        unusable_tail_days=pick.choice([0.0, 0.02, 0.5]) if mode == "capacity-block" else 0.0,
        frozen=(pick.randrange(windows),) if windows > 1 and pick.random() < 0.15 else (),
        latest_start_days={"reserved": 0.0, "capacity-block": pick.choice([0.0, 1.0, 3.0])}.get(mode, inf),
    )


def _options(
    pick: Random, task: int, resources: tuple[Resource, ...], region_of: list[int], windows: int, most: int
) -> list[Option]:
    work_days = pick.choice([1.3, 4.0, 7.7, 12.0])
    found = []
    for number in range(min(3, most // windows)):
        resource = pick.randrange(len(resources))
        nodes = pick.choice([1, 2, 4])
        usd = round(RATE_USD[resources[resource].mode] * nodes * pick.uniform(0.9, 1.5), 2)
        found.append(
            Option(
                task=task,
                resource=resource,
                region=region_of[resource],
                nodes=nodes,
                work_days=round(work_days / nodes**0.85 * pick.uniform(0.8, 1.5), 3),
                setup_days=pick.choice([0.0, 0.04, 0.5]),
                daily=(("compute", usd), *pick.choice([(), (("monitoring", 3.0 * nodes),)])),
                once=pick.choice([(), (), (), (("migration", pick.choice([5.0, 60.0])),)]),
                accelerator_hours_per_day=nodes * 192.0,
                cloud=resources[resource].mode,
                key=f"{task}-{number}",
            )
        )
    return found


def _products(pick: Random, resource: int, days: float) -> list[Product]:
    lengths = pick.sample([1.0, 2.0, 4.0, round(days) + 1.0, 30.0], pick.choice([1, 2]))
    return [
        Product(
            resource=resource,
            days=length,
            usd_per_node=round(length**0.8 * pick.uniform(20.0, 60.0), 2),
            most=pick.choice([1, 2, 4, 8]),
        )
        for length in lengths
    ]


def _with_traffic(pick: Random, spec: ProblemSpec) -> ProblemSpec:
    """Datasets that lie somewhere, state and results that have to be moved."""
    prices = [0.0, 0.0, 12.0, 75.5, 300.0]
    tasks, regions = range(len(spec.tasks)), range(len(spec.regions))
    datasets: list[DatasetChoice] = []
    for task in tasks:
        if pick.random() < 0.4:
            for tier in pick.choice([["hot"], ["hot", "cold tier, 90 days"]]):
                daily, least = pick.choice([(9.0, 0.0), (2.5, 30.0), (4.0, 90.0)])
                once, read = pick.choice(prices) / 10, pick.choice(prices) / 5
                datasets += [
                    DatasetChoice(task, r, tier, daily * (1 + r / 3), least, once, read) for r in regions
                ]
    between = [(a, b) for a in regions for b in regions if a != b]
    handovers = [(p, t, *pair) for t in tasks for p in spec.tasks[t].predecessors for pair in between]
    return replace(
        spec,
        datasets=tuple(datasets),
        staging_usd={(t, r): pick.choice(prices) for t in tasks for r in regions},
        move_usd={(t, *pair): pick.choice(prices) / 4 for t in tasks for pair in between},
        handover_usd={handover: pick.choice(prices) for handover in handovers},
    )
