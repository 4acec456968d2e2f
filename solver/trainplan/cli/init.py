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
    from trainplan_models.imports import SlurmCluster
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
QuotaTable = Annotated[Path | None, typer.Option(metavar="CSV", help="Quotas in nodes by pool.")]
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
    from trainplan.cli.inputs import load_catalog
    from trainplan.cli.output import write_files
    from trainplan_models.base import InputError, Problem
    from trainplan_models.casefile import case_from_text
    from trainplan_models.imports import quotas_from_csv, reservations_from_csv

    if output.exists():
        there = f"{output} is there already"
        raise InputError(Problem(there, key="--output", fix="Name another file: yours is never changed"))
    known = load_catalog(catalog)
    shape, said = _shape(model, known)
    day0 = _day0(start, needed=reservations is not None)
    held = () if reservations is None else reservations_from_csv(reservations, known, start=day0)
    owned = [*_clusters(known, sinfo, _pairs(accelerator or [])), *held]
    limits = () if quotas is None else quotas_from_csv(quotas, known)
    wanted: dict[str, str | None] = {
        "tokens": tokens,
        "deadline": deadline,
        "budget": budget,
        "start": day0.isoformat() if day0 else None,
    }
    text = _text(model, shape, _resources(owned, limits), wanted)
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


def _pairs(words: list[str]) -> dict[str, str]:
    from trainplan_models.base import InputError, Problem

    wrong = [word for word in words if word.count("=") != 1]
    if wrong:
        raise InputError(
            Problem(f"{wrong[0]!r} is not TYPE=NAME", key="--accelerator", fix="Write h100=H100-SXM")
        )
    return dict(word.split("=") for word in words)


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


def _clusters(known: Catalog, sinfo: Path | None, names: dict[str, str]) -> list[Owned]:
    from trainplan_models.imports import owned_from_sinfo

    if sinfo is None:
        return []
    cluster = owned_from_sinfo(_read(sinfo), name=sinfo.stem, accelerators=names, known=known)
    _tell(cluster)
    return [pool.owned for pool in cluster.pools]


def _resources(owned: Sequence[Owned], limits: Sequence[Quota]) -> dict[str, Any]:
    """What is there already, as the case writes it."""
    found: dict[str, Any] = {}
    if owned:
        found["owned"] = [_written(one.model_dump(exclude_defaults=True)) for one in owned]
    if limits:
        found["quotas"] = [_quota(limit.model_dump(by_alias=True, exclude_none=True)) for limit in limits]
    return found


def _tell(cluster: SlurmCluster) -> None:
    for pool in cluster.pools:
        owned = pool.owned
        broken = f", {pool.broken} out of order" if pool.broken else ""
        machines = f"{owned.nodes} nodes of {owned.accelerators_per_node} {owned.accelerator}"
        sys.stderr.write(f"{owned.name}: {machines}, {pool.idle} idle now{broken}\n")
    sys.stderr.writelines(f"warning: {warning}\n" for warning in cluster.warnings)


def _quota(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value if key == "pool" else f"{value} nodes" for key, value in record.items()}


def _written(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the case with units, as a person would write it."""
    from trainplan_models.units import format_quantity

    units: dict[str, Any] = {"network": "bytes_per_s", "node_usd_per_h": "usd_per_h"}
    names = {"node_usd_per_h": "node_price"}
    found: dict[str, Any] = {}
    for key, value in record.items():
        if key == "nodes":
            found[key] = f"{value} nodes"
        elif key == "free":
            found[key] = [{"from": _moment(one["since"]), "nodes": f"{one['nodes']} nodes"} for one in value]
        elif key in units:
            found[names.get(key, key)] = format_quantity(value, units[key])
        else:
            found[key] = value
    return found


def _moment(since: str | float) -> str:
    return since if isinstance(since, str) else f"day {since / 86400.0:g}"


def _read(path: Path) -> str:
    from trainplan_models.base import InputError, Problem

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None


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
        resources=_yaml(_with_billing(resources), indent=2).rstrip() if resources else "",
    )


def _name(model: str) -> str:
    """A name for the case: that of the model, or of the file or folder its configuration is in."""
    path = Path(model)
    if path.suffix != ".json":
        return model
    return path.stem if path.stem != "config" else path.resolve().parent.name or "case"


def _with_billing(resources: dict[str, Any]) -> dict[str, Any]:
    held = "owned" in resources
    return {"billing": ["owned", "on-demand", "spot"] if held else ["on-demand", "spot"]} | resources


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
