"""The kinds of cost there are, and their unit rates.

A rate is written once, here, and is used both as a coefficient of the optimization and in the accounting.
What a case says nothing about takes the catalogue's default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import NodeType
from trainplan_models.reliability import DAY_S, MONTH_H
from trainplan_models.storage import GB_BYTES

if TYPE_CHECKING:
    from trainplan_models.case import Case, Owned
    from trainplan_models.catalog import Catalog, Pool

MONTH_DAYS = MONTH_H / 24.0


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of cost."""

    name: str
    fixed: bool
    """Owed whether or not the work grows; what was committed to is fixed in any category."""
    meaning: str


COMPUTE = "compute"
CPU_NODES = "cpu nodes"
POWER = "power and cooling"
STORAGE = "storage"
NETWORK = "network"
DATA_PREPARATION = "data preparation"
EVALUATION = "evaluation"
LOGGING = "logging and monitoring"
METADATA = "metadata database"
SECURITY = "security"
PEOPLE = "operations and people"
EXPERIMENTS = "experiments and retries"
MIGRATION = "migration"
DELAY = "delay"
UNUSED = "unused commitments"

CATEGORIES: tuple[Category, ...] = (
    Category(COMPUTE, False, "accelerator nodes of training tasks, spares and set-up time included"),
    Category(CPU_NODES, True, "login, scheduler and data machines for the whole programme"),
    Category(POWER, False, "electricity of owned nodes with its share of cooling"),
    Category(STORAGE, False, "datasets, checkpoints, milestones, second-region copies and logs"),
    Category(NETWORK, False, "staging data, moving checkpoints, second-region traffic, log traffic"),
    Category(DATA_PREPARATION, False, "nodes and bought data of prepare-data and generate-data tasks"),
    Category(EVALUATION, False, "nodes and bought work of evaluate tasks"),
    Category(LOGGING, False, "log ingestion and metrics, by node and day"),
    Category(METADATA, True, "experiment records and configuration store"),
    Category(SECURITY, True, "identity, encryption, audit"),
    Category(PEOPLE, True, "engineers and running the platform"),
    Category(EXPERIMENTS, False, "trial runs and repeats, as a share of the compute of training"),
    Category(MIGRATION, True, "adapting to a cloud not used before"),
    Category(DELAY, False, "each day after the deadline"),
    Category(UNUSED, True, "what was committed to and not used"),
)
FIXED: dict[str, bool] = {category.name: category.fixed for category in CATEGORIES}

PRICED = (COMPUTE, EXPERIMENTS, EVALUATION, DATA_PREPARATION)
"""Categories whose cost of a day at work follows the price of the nodes."""

TASK_CATEGORIES: dict[str, str] = {
    "prepare-data": DATA_PREPARATION,
    "generate-data": DATA_PREPARATION,
    "evaluate": EVALUATION,
}
"""Where the nodes of a kind of task are counted; ``compute`` for every other kind."""


def node_category(kind: str) -> str:
    """The category of the nodes that a task of this kind uses."""
    return TASK_CATEGORIES.get(kind, COMPUTE)


def bought_category(kind: str) -> str:
    """The category of a task's fixed price (data, labelling, an outside evaluation)."""
    return TASK_CATEGORIES.get(kind, DATA_PREPARATION)


# Prices


def discount_frac(case: Case, cloud: str, pool: str) -> float:
    """Private discount on a rented price; one given for the pool goes before one for its cloud."""
    discounts = case.resources.discounts
    return discounts.get(pool, discounts.get(cloud, 0.0))


def node_usd_per_h(case: Case, pool: Pool, mode: str) -> float:
    """Price of a node-hour in a rented pool under a billing mode, less the private discount.

    Raises:
        KeyError: the mode is not sold there.
    """
    return pool.usd_per_node_h[mode] * (1.0 - discount_frac(case, pool.cloud, pool.name))


# By node and hour


def power_usd_per_node_h(owned: Owned, catalog: Catalog, node: NodeType | None = None) -> float:
    """Electricity of an owned node at work with its share of cooling: ``kW * load * PUE * USD/kWh``.

    Args:
        owned: the cluster; its own price and PUE go before the catalogue's.
        catalog: the prices.
        node: the machine; absent, the reference machine of the cluster's accelerator. Where its greatest
            power is not known, it is taken from the chips' TDP.

    Raises:
        InputError: there is no reference machine, or nobody published the power of the chip.
    """
    machine = node or catalog.reference_node(owned.accelerator, owned.accelerators_per_node)
    watts = machine.power_w
    if watts is None:
        chip = catalog.accelerator(owned.accelerator)
        if chip.tdp_w is None:
            raise InputError(Problem(f"the power of {chip.name} is not known", key="tdp_w"))
        watts = chip.tdp_w * machine.accelerators * catalog.default("power.node_w_per_accelerator_w")
    price = owned.electricity_usd_per_kwh
    if price is None:
        price = catalog.default("electricity.usd_per_kwh")
    pue = catalog.default("pue") if owned.pue is None else owned.pue
    return watts / 1000.0 * catalog.default("power.load_frac") * pue * price


# By node and day


def logs_gb_per_node_day(case: Case, catalog: Catalog) -> float:
    """Log volume of one node."""
    told = case.overheads.logs.per_node_bytes_per_day
    return catalog.default("logs.gb_per_node_day") if told is None else told / GB_BYTES


def logs_keep_days(case: Case, catalog: Catalog) -> float:
    """How long logs are kept."""
    told = case.overheads.logs.keep_s
    return catalog.default("logs.keep_days") if told is None else told / DAY_S


def log_ingest_usd_per_node_day(case: Case, catalog: Catalog) -> float:
    """Taking in a day's logs of one node."""
    return logs_gb_per_node_day(case, catalog) * catalog.default("logs.ingest_usd_per_gb")


def log_storage_usd_per_node_day(case: Case, catalog: Catalog) -> float:
    """Keeping a day's logs of one node for as long as they are kept."""
    months = logs_keep_days(case, catalog) / MONTH_DAYS
    return logs_gb_per_node_day(case, catalog) * months * catalog.default("logs.storage_usd_per_gb_month")


def log_traffic_usd_per_node_day(case: Case, catalog: Catalog, rented: bool) -> float:
    """Sending a day's logs of one rented node out through a NAT gateway."""
    return logs_gb_per_node_day(case, catalog) * catalog.default("network.nat_usd_per_gb") * rented


def logs_usd_per_node_day(case: Case, catalog: Catalog) -> float:
    """Ingestion and keeping of a day's logs of one node."""
    return log_ingest_usd_per_node_day(case, catalog) + log_storage_usd_per_node_day(case, catalog)


def monitoring_usd_per_node_day(case: Case, catalog: Catalog) -> float:
    """Metrics of one node."""
    told = case.overheads.monitoring_usd_per_node_month
    month = catalog.default("monitoring.usd_per_node_month") if told is None else told
    return month / MONTH_DAYS


def observability_usd_per_node_day(case: Case, catalog: Catalog, rented: bool) -> float:
    """Everything charged by node and day: logs, their traffic, metrics."""
    return (
        logs_usd_per_node_day(case, catalog)
        + log_traffic_usd_per_node_day(case, catalog, rented)
        + monitoring_usd_per_node_day(case, catalog)
    )


# By day of the programme


def people_usd_per_day(case: Case, catalog: Catalog) -> float:
    """Engineers, averaged over the days of the week."""
    told = case.people.rate_usd_per_h
    rate = catalog.default("people.rate_usd_per_h") if told is None else told
    return case.people.engineers * rate * case.people.hours_per_week / 7.0


def operations_usd_per_day(case: Case, catalog: Catalog) -> float:
    """Running the platform."""
    told = case.overheads.operations_usd_per_month
    return (catalog.default("operations.usd_per_month") if told is None else told) / MONTH_DAYS


def security_usd_per_day(case: Case, catalog: Catalog) -> float:
    """Identity, encryption, audit."""
    told = case.overheads.security_usd_per_month
    return (catalog.default("security.usd_per_month") if told is None else told) / MONTH_DAYS


def metadata_usd_per_day(case: Case, catalog: Catalog) -> float:
    """Experiment records and configuration store."""
    told = case.overheads.metadata_usd_per_month
    return (catalog.default("metadata.usd_per_month") if told is None else told) / MONTH_DAYS


def cpu_nodes_usd_per_day(case: Case, catalog: Catalog) -> float:
    """CPU machines that run for the whole programme."""
    told = case.overheads.cpu_node_usd_per_h
    price = catalog.default("cpu_node.usd_per_h") if told is None else told
    return case.overheads.cpu_nodes * price * 24.0


def programme_usd_per_day(case: Case, catalog: Catalog) -> float:
    """Everything charged by day until the programme ends."""
    return (
        people_usd_per_day(case, catalog)
        + operations_usd_per_day(case, catalog)
        + security_usd_per_day(case, catalog)
        + metadata_usd_per_day(case, catalog)
        + cpu_nodes_usd_per_day(case, catalog)
    )


# Once, or in proportion


def experiments_frac(case: Case) -> float:
    """Trial runs and repeats as a share of training compute."""
    return case.overheads.experiments


def delay_days(case: Case, finish_s: float) -> float:
    """Days the programme ends after its deadline (after day 0 when there is none)."""
    return max(0.0, finish_s - (case.deadline_s or 0.0)) / DAY_S


def delay_usd_per_day(case: Case) -> float:
    """Cost of each day of :func:`delay_days`."""
    return case.overheads.delay_usd_per_day or 0.0


def migration_usd_per_cloud(case: Case) -> float:
    """One-off cost of a cloud not used before."""
    return case.overheads.migration_usd or 0.0


def new_clouds(case: Case, clouds: Iterable[str]) -> tuple[str, ...]:
    """The clouds among ``clouds`` that have to be adapted to; owned clusters and grants are known."""
    own = {owned.name for owned in case.resources.owned} | {grant.name for grant in case.resources.grants}
    return tuple(sorted(set(clouds) - set(case.overheads.known_clouds) - own))


def milestone_keep_s(case: Case, catalog: Catalog) -> float:
    """How long a milestone is kept."""
    told = case.checkpoints.keep_for_s
    return catalog.default("milestones.keep_for_days") * DAY_S if told is None else told


def copies_per_s(case: Case) -> float:
    """Checkpoints copied to the second region per second of a segment: the milestones, else one a day."""
    if not case.checkpoints.copy_to_second_region:
        return 0.0
    return 1.0 / (case.checkpoints.keep_every_s or DAY_S)


def milestones_per_s(case: Case) -> float:
    """Milestones kept per second of a segment."""
    every_s = case.checkpoints.keep_every_s
    return 0.0 if every_s is None else 1.0 / every_s
