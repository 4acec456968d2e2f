"""The best plan with another form of parallelism on the same machines: what splitting differently would cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainplan.alternatives import DAY_S, Glance, Warm, difference
from trainplan.assembly import Assembly
from trainplan.candidates import Candidate
from trainplan.highs import Session
from trainplan.options import OptionMaker
from trainplan.problem import Option
from trainplan.screening import setup_on
from trainplan.works import Work
from trainplan_models.layout import LayoutGrid, enumerate_layouts
from trainplan_models.memory import peak_memory
from trainplan_models.plan import Alternative, Layout, Plan, Segment
from trainplan_models.step_time import step_time
from trainplan_models.units import format_quantity

DEGREES = (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert"))
SHARDED = "sharded weights"


def form_of(layout: Layout) -> str:
    """The ways in which a layout splits the work, e.g. ``data + tensor + pipeline``."""
    words = ["data", *(word for name, word in DEGREES if getattr(layout, name) > 1)]
    return " + ".join([*words, SHARDED] if layout.zero_stage == 3 else words)


@dataclass(frozen=True, slots=True)
class _Form:
    """The best layout of one form, or the nearest where none fits."""

    name: str
    candidate: Candidate | None
    short_bytes: float
    """How much memory is missing on an accelerator; 0 where it fits."""


def layout_alternatives(
    session: Session, assembly: Assembly, plan: Plan, time_limit_s: float
) -> list[Alternative]:
    """For each task, the best plan with another form of its layout, on the machines and nodes of the plan.

    Args:
        session: where it is solved.
        assembly: what the plan was made from.
        plan: the answer.
        time_limit_s: limit of each solve.
    """
    found: list[Alternative] = []
    for number, work in enumerate(assembly.works):
        runs = [s for s in plan.segments if s.task == work.task.name]
        if not runs or not work.training or work.setup is None or work.task.kind == "rl":
            continue
        main = max(runs, key=lambda s: s.work_frac)
        found += _of_task(session, assembly, plan, number, main, time_limit_s)
    return found


def _of_task(
    session: Session, assembly: Assembly, plan: Plan, task: int, main: Segment, time_limit_s: float
) -> Iterator[Alternative]:
    work, chosen = assembly.works[task], form_of(main.layout)
    forms = [form for form in _forms(assembly, work, main) if form.name != chosen]
    made = {form.name: _options(assembly, task, main, form) for form in forms}
    others = [option for option in assembly.spec.options if option.task != task]
    spec = replace(assembly.spec, options=(*others, *(o for options in made.values() for o in options)))
    rest = list(range(len(others)))
    groups, at = {}, len(others)
    for name, options in made.items():
        groups[name] = [*rest, *range(at, at + len(options))] if options else []
        at += len(options)
    able = [group for group in groups.values() if group]
    warm = Warm(spec, session, time_limit_s, able) if able else None
    several = len(assembly.works) > 1
    for form in forms:
        name = f"{work.task.name}: {form.name}" if several else form.name
        glance = warm.glance(groups[form.name]) if warm is not None and groups[form.name] else None
        if isinstance(glance, Glance):
            yield Alternative(
                kind="layout",
                name=name,
                usd=glance.usd,
                finish_s=glance.finish_days * DAY_S,
                reason=difference(plan, glance, assembly),
            )
        else:
            yield Alternative(kind="layout", name=name, reason=_why_not(form))


def _why_not(form: _Form) -> str:
    if form.candidate is None:
        return f"does not fit: {format_quantity(form.short_bytes, 'bytes')} are missing on an accelerator"
    return "too slow for the limits of the case"


def _options(assembly: Assembly, task: int, main: Segment, form: _Form) -> list[Option]:
    """The options of a form in the place and under the billing mode of a segment."""
    if form.candidate is None:
        return []
    for option, detail in zip(assembly.spec.options, assembly.details, strict=True):
        if detail is None or option.task != task or (detail.site.name, detail.mode) != (main.pool, main.mode):
            continue
        maker = OptionMaker(assembly.case, assembly.catalog, assembly.world, detail.work, detail.site)
        made = maker.make(task, option.resource, option.region, main.mode, [form.candidate])
        return [found for found, _ in made]
    return []


def _forms(assembly: Assembly, work: Work, main: Segment) -> list[_Form]:
    """Every form that is legal on the nodes of a segment, each with its fastest layout that fits."""
    site = next(site for site in assembly.sites if site.name == main.pool)
    setup = setup_on(work, site.accelerator)
    if setup is None:
        return []
    grid, _ = enumerate_layouts(setup, site.accelerator, site.node, [main.nodes])
    if not len(grid):
        return []
    memory = peak_memory(setup, site.accelerator, site.node, grid)
    times = step_time(setup, site.accelerator, site.node, grid)
    factor = assembly.case.assumptions.throughput_factor
    speed = np.asarray(times.tokens_per_s) * factor
    codes, forms = _codes(grid), []
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        fits = rows[memory.fits[rows]]
        row = (
            int(fits[np.argmax(speed[fits])]) if len(fits) else int(rows[np.argmin(memory.total_bytes[rows])])
        )
        layout = grid.record(row, setup.precision)
        candidate = Candidate(
            nodes=main.nodes,
            layout=layout,
            step_s=float(times.step_s[row]) / factor,
            tokens_per_s=float(speed[row]),
            mfu_frac=float(times.mfu_frac[row]) * factor,
            peak_memory_bytes=float(memory.total_bytes[row]),
        )
        usable = float(np.broadcast_to(memory.usable_bytes, memory.total_bytes.shape)[row])
        short = 0.0 if len(fits) else float(memory.total_bytes[row]) - usable
        forms.append(_Form(form_of(layout), candidate if len(fits) else None, short))
    return forms


def _codes(grid: LayoutGrid) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for the form of each layout."""
    bits = [np.asarray(getattr(grid, name)) > 1 for name, _ in DEGREES] + [np.asarray(grid.zero_stage) == 3]
    return np.asarray(sum(bit.astype(np.int64) << place for place, bit in enumerate(bits)))
