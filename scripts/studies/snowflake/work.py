"""What is compiled and simulated for the tables that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

from studies.harness.errors import StudyError
from studies.harness.study import Bench
from studies.shared.networks import Network, Region, prepare, prepare_model
from studies.snowflake import layers
from studies.snowflake.measuring import Measured, Missing, measure, planned, proven
from studies.snowflake.published import (
    FIGURE_7,
    INPUT_SIZES,
    NETWORKS,
    RECURRENT_LAYERS,
    RECURRENT_STEPS,
    TABLE_1_MS,
    TABLE_3,
    ZC706,
)
from studies.snowflake.variants import (
    AFTER,
    BEFORE,
    DEFAULT,
    EVERY_STEP,
    EXACT,
    KEPT,
    REUSE,
    WITHOUT_A_PASS,
    Variant,
)
from tvm_npu import models
from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.plan import Planner
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

Table = Literal["1", "2", "3", "figure5", "figure6", "figure7", "zc706", "passes", "exact"]
TABLES: tuple[Table, ...] = (
    "3", "figure5", "2", "figure6", "figure7", "zc706", "passes", "exact", "1",
)  # fmt: skip
PROTOTYPE, NETWORK_MACHINE, BOARD, FAST_MEMORY = (
    "snowflake-1cu", "snowflake-1cc", "snowflake-zc706", "snowflake-1cc-9gbs",
)  # fmt: skip
SCALED = (NETWORK_MACHINE, "snowflake-2cc", "snowflake-4cc")
MACHINES = (PROTOTYPE, *SCALED, BOARD, FAST_MEMORY)
CONVOLUTIONS = (*(one.layer for one in TABLE_3), *FIGURE_7)
MAX_POOL, TRANSPOSED_CONV = "max-pool 27x27x256", "transposed conv 32x32x64"


@dataclass(frozen=True)
class Case:
    """A model or a layer on a machine, compiled in one way."""

    subject: str
    machine: str
    variant: Variant

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.subject, self.machine, self.variant.name)


def cases(
    tables: Sequence[str], networks: Sequence[str], machines: Sequence[str], cells: Sequence[str]
) -> list[Case]:
    """All that the tables need, each once; those of a network one after the other."""
    found: list[Case] = []
    if "3" in tables:
        found += [Case(one.layer.name, PROTOTYPE, DEFAULT) for one in TABLE_3]
    if "figure7" in tables:
        found += [Case(layer.name, NETWORK_MACHINE, DEFAULT) for layer in FIGURE_7]
    if "passes" in tables:
        for variant in (BEFORE, AFTER):
            found.append(Case(MAX_POOL, PROTOTYPE, variant))
            found.append(Case(TRANSPOSED_CONV, NETWORK_MACHINE, variant))
    if "1" in tables:
        found += [Case(cell, FAST_MEMORY, one) for cell in cells for one in (EVERY_STEP, KEPT)]
    for network in networks:
        for table in tables:
            found += _of_network(table, network)
    return list({one.key: one for one in found if one.machine in machines}.values())


def _of_network(table: str, network: str) -> Iterable[Case]:
    if table == "figure5":
        return [Case(network, machine, DEFAULT) for machine in SCALED]
    if table == "zc706":
        return [Case(network, BOARD, DEFAULT)] if network in ZC706 else []
    variants: dict[str, tuple[Variant, ...]] = {
        "2": (DEFAULT,),
        "figure6": REUSE,
        "passes": (DEFAULT, *WITHOUT_A_PASS),
        "exact": (DEFAULT, EXACT),
    }
    return [Case(network, NETWORK_MACHINE, one) for one in variants.get(table, ())]


def computed(case: Case, bench: Bench) -> Measured | Missing:
    """The case's measurement, or why there is none."""
    machine = snowflake(case.machine)
    try:
        planner: Any = case.variant.planner  # hashable, as all planners of variants are
        plans = _planned(case.subject, machine, planner)
        found = measure(
            _regions(case.subject), plans, machine, case.variant.passes,
            with_idle=case.variant is DEFAULT,
        )  # fmt: skip
        return replace(found, proven=proven(plans, machine)) if case.variant is EXACT else found
    except (CodegenError, StudyError) as error:
        return Missing(str(error))


@lru_cache(maxsize=2)
def _planned(
    subject: str, machine: SnowflakeMachine, planner: Planner
) -> tuple[PlannedGraph, ...]:
    """Once for all the passes that are left out one at a time."""
    return planned(_regions(subject), machine, planner)


def cell_name(cell: str, hidden: int) -> str:
    return f"{cell}-{hidden}"


CELLS = tuple(cell_name(*one) for one in TABLE_1_MS)


def snowflake(name: str) -> SnowflakeMachine:
    machine = load_machine(name)
    assert isinstance(machine, SnowflakeMachine)
    return machine


@lru_cache(maxsize=1)
def network(name: str) -> Network:
    """The one that is at work: networks are large."""
    machine = snowflake(NETWORK_MACHINE)
    if name in NETWORKS:
        return prepare(name, machine, "int16", input_size=INPUT_SIZES.get(name))
    cell, hidden = next(one for one in TABLE_1_MS if cell_name(*one) == name)
    built = models.build_recurrent(
        cell, hidden=hidden, layers=RECURRENT_LAYERS, steps=RECURRENT_STEPS  # type: ignore[arg-type]
    )
    return prepare_model(name, built, machine, "int16")


def _regions(subject: str) -> tuple[Region, ...]:
    single: dict[str, Callable[[], Region]] = {
        MAX_POOL: layers.max_pool_region,
        TRANSPOSED_CONV: layers.transposed_conv_region,
        **{one.name: partial(layers.convolution_region, one) for one in CONVOLUTIONS},
    }
    return (single[subject](),) if subject in single else network(subject).regions
