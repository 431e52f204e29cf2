"""Random layers on Snowflake machines, bit for bit, and programs that lack one `sync`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_number, add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.snowflake_layers.measuring import LayerRow, MutantRow, layer_row, mutant_row
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MACHINES = ("snowflake-1cc", "snowflake-1cu", "snowflake-2cc", "snowflake-4cc", "snowflake-zc706")
PLANNERS = ("snowflake", "exact")
LAYERS, MUTATED, TOGETHER = 300, 80, 10
"""``TOGETHER`` layers are a part of the work."""
LARGEST_SHOWN = 20


@dataclass(frozen=True)
class Result:
    layers: tuple[LayerRow, ...]
    mutants: tuple[MutantRow, ...]


class SnowflakeLayersStudy(Study[Result]):
    name = "bench_snowflake_layers"
    texts = Texts(
        "Compiles and simulates random layers of all types on Snowflake machines, and compares\n"
        "them with the reference bit for bit. Then takes each `sync` out of programs, one at a\n"
        "time: the race checker has to notice, unless something else keeps the order.",
        "A bit that is off, a race, or a mutant with wrong values about which the checker is\n"
        "silent makes the exit code 1.",
        {"json": "write one object a layer, and one a mutated program"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_number(parser, "--layers", LAYERS, "random layers", positive)
        add_number(parser, "--mutated", MUTATED, "of them are mutated, the first", positive)
        parser.add_argument(
            "--seed", type=int, default=0, metavar="N", help="other layers (default: 0)"
        )
        add_several(parser, "--machines", "machine", MACHINES)
        add_several(parser, "--planners", "planner", PLANNERS)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        given = (options.seed, tuple(options.machines), tuple(options.planners))
        mutated = min(options.mutated, options.layers)
        return [
            *(
                Part(("layers", *_key(numbers)), list[LayerRow], partial(_layers, numbers, given))
                for numbers in _parts(options.layers)
            ),
            *(
                Part(("mutants", *_key(one)), list[MutantRow], partial(_mutants, one, given))
                for one in _parts(mutated)
            ),
        ]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Result:
        return Result(
            tuple(row for key, rows in found.items() if key[0] == "layers" for row in rows),
            tuple(row for key, rows in found.items() if key[0] == "mutants" for row in rows),
        )

    def rows(self, result: Result) -> Mapping[str, Sequence[Any]]:
        return {
            "json": [
                *({"table": "layers", **asdict(row)} for row in result.layers),
                *({"table": "mutants", **asdict(row)} for row in result.mutants),
            ]
        }

    def show(self, console: Console, result: Result) -> None:
        print_sheets(console, [_layers_sheet(result.layers), _mutants_sheet(result.mutants)])
        for row in result.layers:
            if row.bits_off or row.hazards:
                console.print(
                    f"layer {row.layer} ({row.kind}, {row.machine}, {row.planner}): {row.bits_off} "
                    f"elements differ, {row.hazards} races", soft_wrap=True,
                )  # fmt: skip
        survivors = [
            f"layer {row.layer} ({row.kind}, {row.machine}): {text}"
            for row in result.mutants
            for text in row.survivors
        ]
        for line in survivors[:LARGEST_SHOWN]:
            console.print(f"keeps its order without: {line}", soft_wrap=True)
        if len(survivors) > LARGEST_SHOWN:
            console.print(f"and {len(survivors) - LARGEST_SHOWN} more")

    def check(self, result: Result) -> None:
        """Raises StudyError for bits that are off, races, and mutants that nothing noticed."""
        off = sum(bool(row.bits_off) for row in result.layers)
        races = sum(bool(row.hazards) for row in result.layers)
        silent = sum(row.wrong for row in result.mutants)
        if off or races or silent:
            raise StudyError(
                f"{off} of {len(result.layers)} layers have bits off, {races} races; {silent} "
                "mutants with wrong values were not noticed; the limit is 0"
            )


STUDY = SnowflakeLayersStudy()
Given = tuple[int, tuple[str, ...], tuple[str, ...]]
"""Seed, machines, planners."""


def _parts(count: int) -> list[range]:
    return [range(begin, min(begin + TOGETHER, count)) for begin in range(0, count, TOGETHER)]


def _key(numbers: range) -> tuple[str, str]:
    return str(numbers.start), str(numbers.stop - 1)


def _on(number: int, given: Given) -> tuple[int, int, SnowflakeMachine, str]:
    """Machines and planners in turn."""
    seed, machines, planners = given
    machine = load_machine(machines[number % len(machines)])
    assert isinstance(machine, SnowflakeMachine)
    return number, seed, machine, planners[number // len(machines) % len(planners)]


def _layers(numbers: range, given: Given, bench: Bench) -> list[LayerRow]:
    return [layer_row(*_on(number, given)) for number in numbers]


def _mutants(numbers: range, given: Given, bench: Bench) -> list[MutantRow]:
    return [mutant_row(*_on(number, given)) for number in numbers]


def _layers_sheet(rows: Sequence[LayerRow]) -> Sheet:
    kinds = _kinds(row.kind for row in rows)

    def counted(chosen: Iterable[LayerRow]) -> tuple[str, ...]:
        counts = Counter(row.kind for row in chosen)
        total = sum(counts.values())
        return (*(f"{counts[kind]:,}" for kind in kinds), f"{total:,}")

    columns = [
        Column("layer", (*kinds, "all"), key=True),
        Column("layers", counted(rows)),
        Column("with bits\noff", counted(row for row in rows if row.bits_off)),
        Column("with\nraces", counted(row for row in rows if row.hazards)),
    ]
    return Sheet("Random layers against the reference", columns)


def _mutants_sheet(rows: Sequence[MutantRow]) -> Sheet:
    kinds = _kinds(row.kind for row in rows)
    columns = [Column("layer", (*kinds, "all"), key=True)]
    for heading, count in (
        ("mutants", lambda row: row.mutants), ("caught by\nthe checker", lambda row: row.caught),
        ("trapped", lambda row: row.trapped), ("wrong and\nsilent", lambda row: row.wrong),
        ("right", lambda row: len(row.survivors)),
    ):  # fmt: skip
        by_kind = [sum(count(row) for row in rows if row.kind == kind) for kind in kinds]
        columns.append(Column(heading, tuple(f"{n:,}" for n in (*by_kind, sum(by_kind)))))
    return Sheet("Programs that wait for less", columns)


def _kinds(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
