"""A scatter plot of predictions against measurements as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

from trainplan_models.validation import ThroughputResult

SIZE, MARGIN = 640.0, 64.0
COLOURS = (
    "#1f77b4",
    "#d62728",
    "#2ca02c",
    "#9467bd",
    "#ff7f0e",
    "#17becf",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
)


def scatter_svg(rows: Sequence[ThroughputResult]) -> str:
    """Predicted over measured tokens per second and accelerator, both on logarithmic scales.

    The full line is equality, the dashed ones 20 % off; points are coloured by accelerator generation.
    """
    points = [
        (float(row.measured), float(row.predicted), row.labels["generation"], row.row_id)
        for row in rows
        if row.measured and row.predicted
    ]
    values = [value for point in points for value in point[:2]] or [1.0, 10.0]
    low, high = floor(log10(min(values))), max(ceil(log10(max(values))), floor(log10(min(values))) + 1)

    def at(value: float) -> float:
        return (log10(value) - low) / (high - low) * (SIZE - 2 * MARGIN)

    def dot(x: float, y: float) -> tuple[float, float]:
        return MARGIN + at(x), SIZE - MARGIN - at(y)

    kinds = sorted({point[2] for point in points})
    colour = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE:.0f}" height="{SIZE:.0f}" font-family="sans-serif" '
        'font-size="11" role="img" aria-label="Predicted against measured throughput">',
        f'<rect width="{SIZE:.0f}" height="{SIZE:.0f}" fill="white"/>',
        *_axes(low, high, dot),
    ]
    for factor, dash in ((1.0, ""), (1.2, "4 4"), (1 / 1.2, "4 4")):
        x1, y1 = dot(10.0**low, 10.0**low * factor)
        x2, y2 = dot(10.0**high, 10.0**high * factor)
        parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#555" stroke-dasharray="{dash}"/>'
        )
    for measured, predicted, kind, row_id in points:
        x, y = dot(measured, predicted)
        title = escape(f"{row_id}: predicted {predicted:.4g}, measured {measured:.4g}")
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour[kind]}" fill-opacity="0.6">'
            f"<title>{title}</title></circle>"
        )
    for i, kind in enumerate(kinds):
        y = MARGIN + 14 * i
        parts.append(f'<circle cx="{MARGIN + 12:.0f}" cy="{y:.0f}" r="4" fill="{colour[kind]}"/>')
        parts.append(f'<text x="{MARGIN + 22:.0f}" y="{y + 4:.0f}">{escape(kind)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axes(low: int, high: int, place: Callable[[float, float], tuple[float, float]]) -> list[str]:
    parts = [
        f'<text x="{SIZE / 2:.0f}" y="{SIZE - 16:.0f}" text-anchor="middle">measured tokens/s per accelerator</text>',
        f'<text x="16" y="{SIZE / 2:.0f}" text-anchor="middle" transform="rotate(-90 16 {SIZE / 2:.0f})">'
        "predicted tokens/s per accelerator</text>",
    ]
    for power in range(low, high + 1):
        x, y = place(10.0**power, 10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{SIZE - MARGIN}" stroke="#ddd"/>')
        parts.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{SIZE - MARGIN}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{SIZE - MARGIN + 16}" text-anchor="middle">{10.0**power:,.6g}</text>'
        )
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,.6g}</text>')
    return parts
