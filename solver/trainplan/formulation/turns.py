r"""Tasks that share nodes one after the other do so in every scenario.

A task :math:`p` ends its stretch in window :math:`w` at :math:`T_{pws}`, which is bounded as its end
:math:`E_{ps}` is (see ``recourse``), with the lengths :math:`\ell` of its stretches up to that window; in the last
window in which it can run it is that end. Where it ends there before task :math:`t` begins (:math:`q_{ptw} = 1`,
see ``capacity``),

.. math::
    E_{ts} \ge T_{pws} + g_{ts} + \sum_{w' \ge w} \ell_{tw's} - M_s (1 - q_{ptw}),\qquad
    T_{tvs} \ge T_{pws} + g_{ts} + \sum_{w \le w' \le v} \ell_{tw's} - M_s (1 - q_{ptw}) \quad (v \ge w)
"""

from __future__ import annotations

from typing import Any

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Constraint, NonNegativeReals, Var


def add(ctx: Context, added: dict[tuple[int, int], Any], most: dict[int, float]) -> None:
    """Adds ``v_through_in`` and what it bounds, after ``v_end_in`` and ``v_length_in``.

    Args:
        ctx: the model.
        added: by task and scenario, what waiting adds and moving takes off.
        most: by scenario, what no end exceeds, in solver units.
    """
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    pairs = list(m.v_ends_before) if hasattr(m, "v_ends_before") else []
    last = {t: max(w for u, w in m.CELLS if u == t) for t, _ in m.CELLS}
    m.v_through_in = through = Var(
        sorted({(p, w) for p, _, w in pairs if w < last[p]}), m.SCENARIOS, within=NonNegativeReals
    )

    def ended(p: int, w: int, s: int) -> Any:
        return through[p, w, s] if w < last[p] else m.v_end_in[p, s]

    def work(t: int, s: int, since: int, until: int) -> Any:
        return added[t, s] + sum(m.v_length_in[t, w, s] for u, w in m.CELLS if u == t and since <= w <= until)

    m.c_through_after_release = Constraint(
        list(through),
        rule=lambda m, p, w, s: (
            through[p, w, s] >= inputs.time(spec.tasks[p].release_days) + work(p, s, 0, w)
        ),
    )
    m.c_through_after_predecessor = Constraint(
        [(d, *key) for key in through for d in spec.tasks[key[0]].predecessors if (d, key[2]) in m.v_end_in],
        rule=lambda m, d, p, w, s: through[p, w, s] >= m.v_end_in[d, s] + work(p, s, 0, w),
    )
    m.c_through_after_window = Constraint(
        [(u, *key) for key in through for t, u in m.v_set_up if t == key[0] and u <= key[1]],
        rule=lambda m, u, p, w, s: through[p, w, s] >= inputs.start(u) * m.v_set_up[p, u] + work(p, s, u, w),
    )
    m.c_turn_in = Constraint(
        [(*turn, s) for turn in pairs for s in m.SCENARIOS],
        rule=lambda m, p, t, w, s: (
            m.v_end_in[t, s]
            >= ended(p, w, s) + work(t, s, w, last[t]) - most[s] * (1 - m.v_ends_before[p, t, w])
        ),
    )
    m.c_turn_through = Constraint(
        [(*turn, v, s) for turn in pairs for t, v, s in through if t == turn[1] and v >= turn[2]],
        rule=lambda m, p, t, w, v, s: (
            through[t, v, s] >= ended(p, w, s) + work(t, s, w, v) - most[s] * (1 - m.v_ends_before[p, t, w])
        ),
    )
