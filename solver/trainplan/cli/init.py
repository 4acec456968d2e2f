"""``trainplan init MODEL``: a case to start from."""

from __future__ import annotations

import io
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainplan.cli.options import CatalogDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainplan_models.case_resources import Owned, Quota
    from trainplan_models.catalog import Catalog
    from trainplan_models.imports import Holding
    from trainplan_models.workload import ModelShape

TOKENS_PER_PARAMETER = 20.0
"""Compute-optimal tokens per parameter (Hoffmann et al., arXiv 2203.15556): a place to start, not advice."""

COUNT_TOLERANCE_FRAC = 0.01
"""Counted and published parameters that differ by more are reported."""


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model of the catalogue, or a Hugging Face config.json.", show_default=False
    ),
]
CaseOut = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Where to; never written over.")
]
TokensText = Annotated[
    str | None, typer.Option(metavar="TOKENS", help="How much to train on, e.g. '300B tokens'.")
]
DeadlineText = Annotated[str, typer.Option(metavar="TIME", help="When it has to be done.")]
BudgetText = Annotated[str | None, typer.Option(metavar="USD", help="The most it may cost.")]
StartText = Annotated[
    str | None, typer.Option(metavar="DATE", help="Day 0; with reservations, today when it is not given.")
]
SinfoFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Output of sinfo; a wrong file says which command makes it."),
]
GpuTypes = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE=NAME", help="What a GPU type of sinfo is in the catalogue. May be repeated."),
]
QuotaTable = Annotated[
    Path | None, typer.Option(metavar="CSV", help="Quotas by pool, in nodes, vCPUs or GPUs.")
]
ReservationTable = Annotated[Path | None, typer.Option(metavar="CSV", help="Reservations that are paid for.")]


def init(
    model: ModelName,
    output: CaseOut = Path("case.yaml"),
    tokens: TokensText = None,
    deadline: DeadlineText = "30 days",
    budget: BudgetText = None,
    start: StartText = None,
    sinfo: SinfoFile = None,
    accelerator: GpuTypes = None,
    quotas: QuotaTable = None,
    reservations: ReservationTable = None,
    catalog: CatalogDirectory = None,
) -> None:
    """Write a case to start from, with the clusters, quotas and reservations that are there already."""
    from trainplan.cli.held import accelerator_names, clusters, tell_left_out
    from trainplan.cli.inputs import load_catalog
    from trainplan.cli.output import write_files
    from trainplan_models.base import InputError, Problem
    from trainplan_models.casefile import case_from_text
    from trainplan_models.imports import Holdings, quotas_from_csv, reservations_from_csv

    if output.exists():
        there = f"{output} is there already"
        raise InputError(Problem(there, key="--output", fix="Name another file: yours is never changed"))
    known = load_catalog(catalog)
    shape, said = _shape(model, known)
    day0 = _day0(start, needed=reservations is not None)
    names = accelerator_names(accelerator or [])
    owned = [] if sinfo is None else clusters(sinfo, names, known)
    held: Holdings[Owned] = Holdings(())
    limits: Holdings[Quota] = Holdings(())
    if reservations is not None:
        held = reservations_from_csv(reservations, known, start=day0)
    if quotas is not None:
        limits = quotas_from_csv(quotas, known)
    tell_left_out([*held.left_out, *limits.left_out])
    wanted: dict[str, str | None] = {
        "tokens": tokens,
        "deadline": deadline,
        "budget": budget,
        "start": day0.isoformat() if day0 else None,
    }
    text = _text(model, shape, _resources([*owned, *held.found], limits.found), wanted)
    case_from_text(text, file=str(output))
    write_files(output.parent, {output.name: text})
    sys.stdout.write(f"{output}\n")
    sys.stderr.writelines(f"{line}\n" for line in said)


def _shape(model: str, known: Catalog) -> tuple[ModelShape, list[str]]:
    """The model's sizes, and what to say about its parameters."""
    from trainplan_models.hf_config import from_hf_config
    from trainplan_models.workload import active_params, shape_of, total_params

    if not model.endswith(".json"):
        row = known.model(model)
        shape, published = shape_of(row), row.published_params
    else:
        shape, published = from_hf_config(model), None
    total = total_params(shape)
    said = [f"{total:,} parameters"]
    if shape.is_moe:
        said[0] += f", {active_params(shape):,} of them used for a token"
    if published and abs(total / published - 1.0) > COUNT_TOLERANCE_FRAC:
        said.append(f"warning: {published:,.0f} are published, {total / published - 1.0:+.1%}")
    return shape, said


def _day0(start: str | None, *, needed: bool) -> date | None:
    from trainplan_models.base import InputError, Problem

    if start is None:
        return date.today() if needed else None
    try:
        return date.fromisoformat(start)
    except ValueError:
        raise InputError(
            Problem(f"{start!r} is no date", key="--start", fix="Write it as 2026-08-31")
        ) from None


def _resources(owned: Sequence[Holding[Owned]], limits: Sequence[Holding[Quota]]) -> dict[str, Any]:
    """What is there already, as the case writes it. Nodes that are held are used whatever ``billing`` says."""
    from trainplan.cli.held import owned_entry, quota_entry

    found: dict[str, Any] = {"billing": ["on-demand", "spot"]}
    if owned:
        found["owned"] = [owned_entry(one) for one in owned]
    if limits:
        found["quotas"] = [quota_entry(one) for one in limits]
    return found if len(found) > 1 else {}


def _text(model: str, shape: ModelShape, resources: dict[str, Any], wanted: dict[str, str | None]) -> str:
    import jinja2

    from trainplan_models.units import format_quantity
    from trainplan_models.workload import active_params, total_params

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainplan.cli", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    amount = format_quantity(TOKENS_PER_PARAMETER * active_params(shape), "tokens", 2)
    sequence = 4096 if shape.max_positions == 0 else min(4096, shape.max_positions)
    return environment.get_template("case.yaml.j2").render(
        about=f"The model has {total_params(shape):,} parameters.",
        name=_name(model),
        model=_yaml(model).strip(),
        tokens=wanted["tokens"] or amount,
        tokens_note="" if wanted["tokens"] else "          # 20 for each parameter, a place to start",
        deadline=wanted["deadline"],
        budget=wanted["budget"] or "",
        start=wanted["start"] or "",
        sequence_length=sequence,
        global_batch=f"{1024 * sequence} tokens",
        resources=_yaml(resources, indent=2).rstrip() if resources else "",
    )


def _name(model: str) -> str:
    """A name for the case: that of the model, or of the file or folder its configuration is in."""
    path = Path(model)
    if path.suffix != ".json":
        return model
    return path.stem if path.stem != "config" else path.resolve().parent.name or "case"


def _yaml(value: Any, indent: int = 0) -> str:
    """Block YAML, indented; a string alone gives one scalar."""
    from ruamel.yaml import YAML

    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 100
    out = io.StringIO()
    writer.dump(value, out)
    text = out.getvalue().removesuffix("...\n")
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())
