"""A frontier as one picture that needs nothing else: SVG, also inside an HTML page."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log10
from typing import Any

from trainplan.frontier import Frontier, FrontierPoint

DAY_S = 86400.0
WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 90, 24, 40, 56
MOST_TICKS = 6

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width }} {{ height }}" role="img" \
aria-label="{{ title }}" font-family="system-ui, sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{{ left }}" y="24" font-size="15" font-weight="600" fill="#222">{{ title }}</text>
{% for x, label in x_ticks -%}
<line x1="{{ x }}" y1="{{ top }}" x2="{{ x }}" y2="{{ bottom }}" stroke="#eee"/>
<text x="{{ x }}" y="{{ bottom + 18 }}" text-anchor="middle" fill="#555">{{ label }}</text>
{% endfor -%}
{% for y, label in y_ticks -%}
<line x1="{{ left }}" y1="{{ y }}" x2="{{ right }}" y2="{{ y }}" stroke="#eee"/>
<text x="{{ left - 8 }}" y="{{ y + 4 }}" text-anchor="end" fill="#555">{{ label }}</text>
{% endfor -%}
<text x="{{ (left + right) / 2 }}" y="{{ height - 14 }}" text-anchor="middle" fill="#222">{{ x_title }}</text>
<text x="16" y="{{ (top + bottom) / 2 }}" text-anchor="middle" fill="#222" \
transform="rotate(-90 16 {{ (top + bottom) / 2 }})">{{ y_title }}</text>
{% for x, y, x2, y2, label in marks -%}
<line x1="{{ x }}" y1="{{ y }}" x2="{{ x2 }}" y2="{{ y2 }}" stroke="#c60" stroke-dasharray="5 4"/>
<text x="{{ x + 4 }}" y="{{ y - 4 if y == y2 else y + 12 }}" fill="#c60">{{ label }}</text>
{% endfor -%}
<path d="{{ path }}" fill="none" stroke="#2a6fb0" stroke-width="2"/>
{% for x, y, within, words in points -%}
<circle cx="{{ x }}" cy="{{ y }}" r="5" stroke="#2a6fb0" stroke-width="2" fill="{{ '#2a6fb0' if within else '#fff' }}">\
<title>{{ words }}</title></circle>
{% endfor -%}
</svg>
"""

HTML = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>body{font:14px system-ui,sans-serif;margin:2em;max-width:60em}table{border-collapse:collapse}
td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:left}td.n{text-align:right}</style></head>
<body>
{{ svg }}
<table><tr><th>plan --set</th><th>{{ cost }}</th><th>planned days</th><th>chance</th><th>plan</th></tr>
{% for point in points -%}
<tr><td>{{ point.overrides | join(', ') }}</td><td class="n">{{ '{:,.0f}'.format(point.usd) }}</td>\
<td class="n">{{ '%.2f' % (point.finish_s / 86400) }}</td>\
<td class="n">{{ '' if point.chance_frac is none else '{:.1%}'.format(point.chance_frac) }}</td>\
<td>{{ point.decision | join('; ') }}</td></tr>
{% endfor -%}
</table></body></html>
"""


def svg_of(found: Frontier) -> str:
    """The frontier as an SVG picture; points within the case's budget are filled."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(SVG).render(**_drawing(found))


def html_of(found: Frontier) -> str:
    """The picture and its table as one HTML page."""
    from jinja2 import Environment
    from markupsafe import Markup

    page = Environment(autoescape=True).from_string(HTML)
    return page.render(
        title=_title(found), svg=Markup(svg_of(found)), cost=_cost_title(found), points=found.points
    )


def _title(found: Frontier) -> str:
    return f"{found.case}: cost against {'finish time' if found.against == 'finish' else 'reliability'}"


def _cost_title(found: Frontier) -> str:
    simulated = any(point.expected_usd is not None for point in found.points)
    return "expected USD" if simulated else "planned USD"


def _drawing(found: Frontier) -> dict[str, Any]:
    by_finish = found.against == "finish"

    def value(point: FrontierPoint) -> float:
        return point.finish_s / DAY_S if by_finish else 100.0 * (point.chance_frac or 0.0)

    x_low, x_high, x_ticks = _scale([value(point) for point in found.points])
    y_low, y_high, y_ticks = _scale([point.usd for point in found.points])
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(amount: float) -> float:
        return round(LEFT + (amount - x_low) / (x_high - x_low) * (right - LEFT), 1)

    def y(amount: float) -> float:
        return round(bottom - (amount - y_low) / (y_high - y_low) * (bottom - TOP), 1)

    ordered = sorted(found.points, key=value)
    marks: list[tuple[float, float, float, float, str]] = []
    if found.budget_usd is not None and y_low < found.budget_usd < y_high:
        marks.append((LEFT, y(found.budget_usd), right, y(found.budget_usd), "budget"))
    if by_finish and found.deadline_s is not None and x_low < found.deadline_s / DAY_S < x_high:
        at = x(found.deadline_s / DAY_S)
        marks.append((at, TOP, at, bottom, "deadline"))
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": right,
        "top": TOP,
        "bottom": bottom,
        "title": _title(found),
        "y_title": _cost_title(found),
        "x_title": "planned finish, days from the start"
        if by_finish
        else "chance of being done in time and budget, %",
        "x_ticks": [(x(tick), f"{tick:g}") for tick in x_ticks],
        "y_ticks": [(y(tick), f"{tick:,.0f}") for tick in y_ticks],
        "marks": marks,
        "path": _steps(ordered, lambda p: x(value(p)), lambda p: y(p.usd), rising=not by_finish),
        "points": [
            (
                x(value(p)),
                y(p.usd),
                p.within_budget,
                f"{p.usd:,.0f} {_cost_title(found)}: {'; '.join(p.decision)}",
            )
            for p in ordered
        ],
    }


def _steps(
    points: list[FrontierPoint],
    x: Callable[[FrontierPoint], float],
    y: Callable[[FrontierPoint], float],
    *,
    rising: bool,
) -> str:
    """The frontier between plans that are known: steps, as a plan serves until a better one can be had."""
    words = [f"M{x(points[0])} {y(points[0])}"]
    for point in points[1:]:
        words.append(f"V{y(point)} H{x(point)}" if rising else f"H{x(point)} V{y(point)}")
    return " ".join(words)


def _scale(values: list[float]) -> tuple[float, float, list[float]]:
    """Ends of an axis and round numbers on it."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    low, high = max(0.0, low - 0.08 * span), high + 0.08 * span
    raw = (high - low) / MOST_TICKS
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    ticks = [step * number for number in range(ceil(low / step), floor(high / step) + 1)]
    return low, high, ticks
