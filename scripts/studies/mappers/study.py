"""Our exact planners beside AccelForge and ZigZag."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.errors import StudyError
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.mappers.goals import TIMES, missed_goals
from studies.mappers.layers import NETWORKS, Case
from studies.mappers.own import FUSED_NOTES, NOTES, PLANNERS, own
from studies.mappers.peers import ABSENT, CANNOT_FUSE, PEERS, Peer, left_out, python_of
from studies.mappers.question import GOALS, Goal, Row, Totals, compulsory_bytes, question
from studies.mappers.tables import print_rows
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

EPILOG = f"""\
The machine is set-up A: memories for inputs, weights, outputs (256, 128, 256 KiB), 4-byte values,
16 x 16 PEs on channels and filters, 58.8 bytes a cycle. Inputs come with their padding. What each
mapper models:
  ours        the machine as it is simulated: starts of transfers and steps, and whether a tile has
              two places; halos of rows can stay, and IN or W tiles of all channels while the
              others come and go; fused layers as one chain, of whose input halos can stay
  accelforge  the memories; halos stay, each tensor has its own tile, tiles divide their loops; for
              the least time the array and the wire to the memory outside, too: a layer takes as
              long as the busier of the two, nothing waits and nothing has a start; fused layers on
              one memory as large as all three, as with three nothing can stay on chip between
              layers, and their times are added
  zigzag      the same memories, array and wires, transfers that wait where no second tile fits;
              loops as at most six factors in any order; one layer at a time, none fused
Times are thus not of one machine model; bytes are. MobileNetV2's blocks are mapped twice: layer by
layer, with what the layers take added, and fused. A peer's environment is made in the cache
folder by pip, or named; a peer that cannot be had, or not for fused layers, is left out, and a line
says so. Timeloop is not on the package index. cpu_s: the mapping alone, on one thread, after
imports and a tiny layer. More bytes than AccelForge's, of a layer of ResNet-18 or of fused layers,
or planning ResNet-18 less than {TIMES:g} times faster, make the exit code 1.
"""


@dataclass(frozen=True)
class Compared:
    rows: tuple[Row, ...]
    absent: Mapping[str, str]
    """What was left out, a peer or its fused rows, and why."""


class MappersStudy(Study[Compared]):
    name = "bench_mappers"
    texts = Texts(
        "Our exact planners beside mappers of others: CPU time, least traffic to the memory\n"
        "outside, least time, each by its own count.",
        EPILOG,
        {"json": "write one object a mapper, goal and layer"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "network", tuple(NETWORKS), ("resnet18",))
        add_several(parser, "--goals", "goal", GOALS, ("bytes",))
        add_several(parser, "--peers", "peer", tuple(PEERS), nargs="*")
        parser.add_argument(
            "--cache", type=Path, metavar="FOLDER", default=_cache(),
            help="where environments of peers are made (default: %(default)s)",
        )  # fmt: skip
        for peer in PEERS.values():
            parser.add_argument(
                f"--{peer.name}", type=Path, metavar="PYTHON",
                help=f"an interpreter that has {peer.packages[0]}",
            )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        peers = [PEERS[name] for name in options.peers]
        parts: list[Part[Any]] = [
            Part(
                ("environment", peer.name), tuple[str, str],
                partial(_environment, peer, vars(options)[peer.name], options.cache),
            )
            for peer in peers
        ]  # fmt: skip
        for model in options.models:
            for goal in options.goals:
                for case in NETWORKS[model]():
                    parts.extend(_case_parts(model, goal, case, peers))
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Compared:
        absent = dict(ABSENT)
        rows: list[Row] = []
        for key, value in found.items():
            if key[0] == "environment":
                absent |= _missing(PEERS[key[1]], value[1], options.models)
            else:
                rows.extend(value)
        return Compared(tuple(rows), absent)

    def rows(self, result: Compared) -> Mapping[str, Sequence[Any]]:
        return {"json": result.rows}

    def show(self, console: Console, result: Compared) -> None:
        print_rows(console, result.rows)
        for name, why in result.absent.items():
            console.print(left_out(name, why), soft_wrap=True)

    def check(self, result: Compared) -> None:
        missed = missed_goals(result.rows)
        if missed:
            raise StudyError(f"below the goal: {', '.join(missed)}")


STUDY = MappersStudy()


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tvm-npu" / "mappers"


def _case_parts(model: str, goal: Goal, case: Case, peers: Sequence[Peer]) -> list[Part[Any]]:
    kind = tuple[Row, ...]
    place = (model, goal, *(("fused",) if case.fused else ()), case.name)
    parts: list[Part[Any]] = [
        Part((*place, PLANNERS[goal]), kind, partial(_own, model, goal, case))
    ]
    for peer in peers:
        if peer.fused_notes or not case.fused:
            asked = partial(_asked, model, goal, case, peer)
            parts.append(Part((*place, peer.name), kind, asked))
    return parts


def _missing(peer: Peer, why: str, models: Sequence[str]) -> dict[str, str]:
    """What of ``peer`` has no rows: all, with ``why``, or those of fused layers."""
    if why:
        return {peer.name: why}
    fused = any(case.fused for model in models for case in NETWORKS[model]())
    return {f"{peer.name}, fused": CANNOT_FUSE} if fused and not peer.fused_notes else {}


def _machine() -> TileMachine:
    machine = load_machine("setup-a")
    assert isinstance(machine, TileMachine)
    return machine


def _environment(peer: Peer, given: Path | None, cache: Path, bench: Bench) -> tuple[str, str]:
    """The peer's interpreter, or "" and why there is none."""
    found = python_of(peer, given, cache)
    return (str(found), "") if isinstance(found, Path) else ("", found)


def _own(model: str, goal: Goal, case: Case, bench: Bench) -> tuple[Row, ...]:
    totals = own(case, _machine(), goal)
    notes = FUSED_NOTES if case.fused else NOTES
    return (_row(PLANNERS[goal], notes, model, goal, case, totals),)


def _asked(model: str, goal: Goal, case: Case, peer: Peer, bench: Bench) -> tuple[Row, ...]:
    """No row where the peer is left out. Layers that are not fused are asked about in turn."""
    python, _ = bench.found["environment", peer.name]
    if not python:
        return ()
    apart = [case] if case.fused else [Case(layer.name, (layer,)) for layer in case.layers]
    answers = [
        peer.ask(Path(python), question(one, _machine(), goal), bench.scratch.resolve())
        for one in apart
    ]
    notes = peer.fused_notes if case.fused else peer.notes
    return (_row(peer.name, notes, model, goal, case, _sum(answers)),)


def _sum(answers: Sequence[Totals]) -> Totals:
    def total(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    return Totals(
        answers[0].version,
        sum(one.cpu_s for one in answers),
        total([one.cycles for one in answers]),
        total([one.dram_bytes for one in answers]),
    )


def _row(mapper: str, notes: str, model: str, goal: Goal, case: Case, totals: Totals) -> Row:
    return Row(
        mapper, totals.version, goal, model, case.name, case.fused, totals.cpu_s, totals.cycles,
        totals.dram_bytes, compulsory_bytes(case, _machine()), notes,
    )  # fmt: skip
