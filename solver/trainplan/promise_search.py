"""Plans that may keep a wanted chance: made again with margins, or with scenarios in the model, and simulated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from trainplan.plan_making import Maker
from trainplan.scenarios import for_plan
from trainplan.solve import Solver
from trainplan_models.base import NoAnswerError, VerificationError
from trainplan_models.plan import Method, Plan
from trainplan_models.simulation import Simulation, simulate
from trainplan_models.simulation_statistics import between

SEARCH_SEED = 1
SCENARIOS = 10_000
SURE_FRAC = 0.002
"""How far above the wanted chance the search aims, so that fresh scenarios agree."""
CLOSE_FRAC = 0.01
"""A chance this little above the wanted one is not worth another solve."""
LEAST_STEP_FRAC = 0.002
MOST_STEPS = 12
MOST_TIGHTENED = 5
"""Solves of the scenario stage."""
TIGHTENED_FRAC: tuple[float, ...] = (0.0, 0.01, 0.03, 0.07)
"""By how much limits are tightened in turn where chance comes first."""
MOST_AIMS = 3
"""Chances for which scenarios are chosen where the wanted one cannot be reached."""
MOST_AIMED_S = 30.0
"""After this long no surer plan is looked for."""
MOST_FURTHER = 5
"""Margins that are tried past the least that is enough, while less lateness costs less on average."""
LOOSER = (0.5, 0.25)
"""Margins, over the first guess, that are tried where no tighter one is enough: less time may be more money."""
MOST_TASKS, MOST_USES = 2, 1_500
"""Tasks, and pairs of an option and a window, with which a model is solved again and again; with more, the options
are screened first, and a margin is only tried where scenarios do not find a plan."""
MOST_MARGIN_S = 15.0
"""After this long no other margin is tried."""
WITHOUT, MARGIN, IN_MODEL, CHANCE_FIRST = "as planned", "margin", "scenarios", "chance first"


@dataclass(frozen=True, slots=True)
class Try:
    margin_frac: float
    plan: Plan
    chance_frac: float
    expected_usd: float
    expected_finish_s: float
    late_q_frac: float
    """By what part of the deadline the scenario that decides the wanted chance is late; negative when in time."""
    finish_p90_s: float
    method: str = WITHOUT


def best_of(found: list[Try], wanted: float, question: str) -> Try:
    """The plan to take: one that keeps the promise at the least, else the surest."""
    most = max(one.chance_frac for one in found)
    level = most - SURE_FRAC if question == "safest" else min(wanted, most)

    def goal(one: Try) -> tuple[float, float]:
        if question == "fastest":
            return one.expected_finish_s, one.expected_usd
        return (-one.plan.tokens if question == "most-tokens" else 0.0), one.expected_usd

    return min((one for one in found if one.chance_frac >= level), key=goal)


def keeps(found: list[Try], wanted: float) -> bool:
    return any(one.chance_frac >= wanted for one in found)


def _is_tight(found: list[Try], wanted: float) -> bool:
    """Whether a looser plan than the last one would have too low a chance, or would not cost less."""
    last, looser = found[-1], found[:-1]
    dearer = any(one.expected_usd >= last.expected_usd for one in looser)
    return last.chance_frac <= wanted + CLOSE_FRAC or dearer


class Search:
    """Plans tried so far, each simulated on the same scenarios."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.tries: list[Try] = []
        self.methods: list[Method] = []
        uses = len(make.solver.inputs.uses)
        self.small = len(make.solver.spec.tasks) <= MOST_TASKS and uses <= MOST_USES
        self._solver: Solver | None = None

    def timed(self, name: str, way: Callable[[], Try]) -> Try:
        """What a method finds, with what it took written down."""
        before, started = len(self.tries), time.monotonic()
        found = way()
        self.methods.append(
            Method(
                name=name,
                plans_count=len(self.tries) - before,
                seconds=time.monotonic() - started,
                chance_frac=found.chance_frac,
                expected_usd=found.expected_usd,
            )
        )
        return found

    def simulated(self, margin_frac: float, plan: Plan, method: str = WITHOUT) -> Try:
        """A plan with its chance."""
        for known in self.tries:
            if (known.plan.segments, known.plan.purchases) == (plan.segments, plan.purchases):
                tried = replace(known, margin_frac=margin_frac, plan=plan, method=method)
                self.tries.append(tried)
                return tried
        case = self.make.assembly.case
        found = simulation_of(self.make, plan, SEARCH_SEED)
        late = 0.0
        if case.deadline_s is not None:
            late = between(found.finish_quantiles_s, case.reliability) / case.deadline_s - 1.0
        tried = Try(
            margin_frac,
            plan,
            found.p_both,
            found.cost_mean_usd,
            found.finish_mean_s,
            late,
            found.finish_quantiles_s["p90"],
            method,
        )
        self.tries.append(tried)
        return tried

    def at(self, margin_frac: float) -> Try | None:
        """The best plan that leaves a margin; None where there is none."""
        limits = self._limits(margin_frac)
        solver = self._margin_solver()
        outcome = solver.solve(limits=limits)
        if outcome.decision is None:
            return None
        if solver is not self.make.solver:
            scope = (
                f"{len({o for o, _ in solver.inputs.uses}):,} options kept of {len(solver.spec.options):,}"
            )
            outcome = replace(outcome, scope=scope)
        make = replace(self.make, solver=solver)
        try:
            return self.simulated(margin_frac, make.plan(outcome, limits), MARGIN)
        except VerificationError:
            # An answer that was cut short may not be exact enough to stand up; it is none then.
            return None

    def _margin_solver(self) -> Solver:
        """The plan's own; over fewer options where that takes too long to be asked again and again."""
        if self.small:
            return self.make.solver
        if self._solver is None:
            from trainplan.shortlist import shortlist

            whole = self.make.solver
            options = shortlist(whole.spec, sorted({o for o, _ in whole.inputs.uses}))
            self._solver = Solver(whole.spec, whole.session, whole.time_limit_s, options)
        return self._solver

    def _limits(self, margin_frac: float) -> dict[str, float]:
        """Limits on time, and on money where the question spends it, with the margin taken off."""
        spends = self.make.assembly.case.question in ("fastest", "most-tokens")
        units = {"days", "USD"} if spends else {"days"}
        return {
            limit.name: limit.upper * limit.per_unit * (1.0 - margin_frac)
            for limit in self.make.solver.ctx.limits
            if limit.unit in units
        }

    def in_scenarios(self, first: Try, wanted: float, *, surest: bool) -> Try:
        """The best plan of the model with scenarios that keeps the promise; else the surest of its plans."""
        found = [] if surest else self._staged(first, wanted)
        if not keeps(found, wanted):
            found += self._surest_at(first, wanted, wanted, (0.0,))
        return best_of(found or [first], wanted, self.make.assembly.case.question)

    def _staged(self, first: Try, wanted: float) -> list[Try]:
        """Plans of the model with scenarios, its limits tightened until the promise is kept and no further."""
        from trainplan.scenario_stage import ScenarioStage

        found: list[Try] = []
        tightened, step, low, high = 0.0, 2.0 * LEAST_STEP_FRAC, 0.0, inf
        try:
            stage = ScenarioStage(self.make, first.plan, wanted)
            for _ in range(MOST_TIGHTENED):
                plan = stage.at(tightened)
                if plan is not None and (not found or plan.segments != found[-1].plan.segments):
                    found.append(self.simulated(tightened, plan, IN_MODEL))
                if not found:
                    break
                if plan is None or found[-1].chance_frac >= wanted:
                    high = tightened
                    if tightened == 0.0 or (plan is not None and _is_tight(found, wanted)):
                        break
                else:
                    low = tightened
                ahead = low + max(found[-1].late_q_frac, step)
                tightened, step = ahead if high == inf else (low + high) / 2.0, 2.0 * step
                if high - low < LEAST_STEP_FRAC:
                    break
        except NoAnswerError:
            return found
        return found

    def surer(self, first: Try, wanted: float) -> Try:
        """The surest plan of the model in which chance comes first, where the wanted chance was not reached.

        The scenarios chosen for the wanted chance hardly tell apart what is less sure, so they are chosen anew for
        the middle between it and what was reached, as long as surer plans come of that.
        """
        found: list[Try] = []
        aimed, tightened = wanted, TIGHTENED_FRAC[1:]
        until = time.monotonic() + MOST_AIMED_S
        for _ in range(MOST_AIMS):
            reached = max(one.chance_frac for one in self.tries)
            found += self._surest_at(first, aimed, wanted, tightened, until)
            most = max(one.chance_frac for one in self.tries)
            if most >= wanted or (aimed < wanted and most <= reached) or time.monotonic() > until:
                break
            aimed, tightened = (most + wanted) / 2.0, TIGHTENED_FRAC
        return best_of(found or [first], wanted, "safest")

    def _surest_at(
        self, first: Try, aimed: float, wanted: float, tightened: Sequence[float], until: float = inf
    ) -> list[Try]:
        """Surest plans over scenarios chosen for the chance ``aimed``.

        The limits are tightened while a plan is done in time in fewer simulated scenarios than in the model: what
        ends to the hour with a purchase or a limit in the model ends after it in a simulation.
        """
        from trainplan.scenario_stage import ScenarioStage

        found: list[Try] = []
        try:
            stage = ScenarioStage(self.make, first.plan, aimed, surest=True)
            for frac in tightened:
                plan = stage.at(frac)
                if plan is None:
                    break
                before = max(one.chance_frac for one in self.tries)
                found.append(self.simulated(frac, plan, IN_MODEL))
                again = found[-1].chance_frac == before
                enough = min(wanted, stage.modelled_frac - CLOSE_FRAC)
                if again or found[-1].chance_frac >= enough or time.monotonic() > until:
                    break
        except NoAnswerError:
            return found
        return found

    def least_margin(self, first: Try, wanted: float) -> Try:
        """The plan with the smallest margin whose chance is at least ``wanted``, or a tighter one that costs less.

        Where no margin is enough, the surest found.
        """
        until = time.monotonic() + MOST_MARGIN_S
        best = self._narrowed(first, wanted, until)
        if best.chance_frac >= wanted:
            return self._further(best, until) if self.make.assembly.case.question == "cheapest" else best
        if not keeps(self.tries, wanted):
            for part in LOOSER:
                found = None if time.monotonic() > until else self.at(part * self._guess(first))
                best = found if found is not None and found.chance_frac > best.chance_frac else best
        return best

    def _narrowed(self, first: Try, wanted: float, until: float) -> Try:
        """The smallest margin that is enough, by bisection; else the surest plan found."""
        low, high = 0.0, 1.0
        margin, best = self._guess(first), first
        for _ in range(MOST_STEPS):
            if time.monotonic() > until:
                break
            found = self.at(margin)
            if found is None:
                high = margin
            elif found.chance_frac >= wanted:
                best = found if best.chance_frac < wanted or found.margin_frac < best.margin_frac else best
                high = margin
                if found.chance_frac <= wanted + CLOSE_FRAC:
                    break
            else:
                best = found if found.chance_frac > best.chance_frac and best.chance_frac < wanted else best
                low = margin
            if high - low < LEAST_STEP_FRAC:
                break
            margin = (low + high) / 2.0
        return best

    def _further(self, best: Try, until: float) -> Try:
        """The cheapest of the plans with a margin, tighter ones tried while the tightest is the cheapest.

        Being late may cost more than being early: a fallback, or days of delay.
        """
        high = 1.0
        for _ in range(MOST_FURTHER):
            known = [one for one in self.tries if one.method != IN_MODEL]
            tightest = max(known, key=lambda one: one.margin_frac)
            if tightest.expected_usd > min(one.expected_usd for one in known) or time.monotonic() > until:
                break
            margin = (tightest.margin_frac + high) / 2.0
            if self.at(margin) is None:
                high = margin
        enough = [one for one in self.tries if one.method == MARGIN and one.chance_frac >= best.chance_frac]
        return min(enough, key=lambda one: one.expected_usd)

    def _guess(self, first: Try) -> float:
        """A margin to begin with: what the slow tenth of the scenarios is late by."""
        case = self.make.assembly.case
        late_s = first.finish_p90_s
        if case.deadline_s is None or late_s <= case.deadline_s:
            return 0.1
        return min(0.5, 1.0 - case.deadline_s / late_s)

    def surest(self, first: Try, _wanted: float) -> Try:
        """The plan with the highest chance over a ladder of margins, the cheapest of equals."""
        found = [first]
        for step in range(1, 10):
            tried = self.at(step / 10.0)
            if tried is None:
                break
            found.append(tried)
        most = max(tried.chance_frac for tried in found)
        return min((t for t in found if t.chance_frac >= most - SURE_FRAC), key=lambda t: t.expected_usd)


def simulation_of(make: Maker, plan: Plan, seed: int) -> Simulation:
    case, catalog = make.assembly.case, make.assembly.catalog
    return simulate(plan, case, catalog, for_plan(plan, case, catalog, SCENARIOS, seed), seed)
