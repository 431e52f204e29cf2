"""Programs forged by a grid: every operand of every instruction at the edges of what numbers hold.

``python -m fuzzing.grid KIND [STEP [CACHE]]`` (with scripts/ in PYTHONPATH) runs each STEP-th
program of a kind in processes with limits of time and memory, and prints outcomes; with a folder
CACHE for it, compiled code checks the bounds of arrays.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzzing import codes
from fuzzing.worker import CPU_SECONDS, MEMORY_BYTES
from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.isa.table import Instruction, Isa
from tvm_npu.sim.kinds import machine_kind

EDGES = (0, 1, -1, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 51, (1 << 63) - 1)
WORD = (1 << 32) - 1


class Plain(random.Random):
    """Chooses what comes first: small operands that mostly make an instruction work."""

    def random(self) -> float:
        return 0.5

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0 if stop is None else start

    def randint(self, a: int, b: int) -> int:
        return a

    def getrandbits(self, k: int) -> int:
        return 0


@dataclass(frozen=True)
class Point:
    """``item`` with ``value`` in its field or, where ``register`` is not None, in that one."""

    item: Instruction
    name: str
    value: int
    register: Any = None


def registers(kind: str) -> list[Any]:
    """Those that hold operands, beside the fields of instructions."""
    if kind == "nmp":
        from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister

        return [*MacRegister, *DmaRegister]
    if kind == "snowflake":
        from tvm_npu.sim.snowflake.isa import Special

        return list(Special)
    from tvm_npu.sim.tiles.isa import TileRegister

    return list(TileRegister)


def points(kind: str) -> Iterator[Point]:
    """The whole grid, without values that the encoding does not hold."""
    isa = machine_kind(codes.machines()[kind][0].isa).isa
    for item in isa.instructions:
        for field in item.fields:
            for value in sorted({*EDGES, field.low, field.high}):
                try:
                    field.encode(value)
                except IsaError:
                    continue
                yield Point(item, field.name, value)
        for register in registers(kind) if _uses_registers(kind, item) else ():
            for value in EDGES:
                if -(1 << 31) <= value <= WORD:
                    yield Point(item, register.name, value, register)


def _uses_registers(kind: str, item: Instruction) -> bool:
    if kind == "nmp":
        return item.mnemonic.startswith("nmp_")
    return item.mnemonic not in ("tset", "tsetu", "tend", "movi")


def case(kind: str, point: Point) -> bytes:
    """A program that sets all registers to plain values, then does ``point``."""
    machine, plain = codes.machines()[kind][0], Plain(0)
    isa = machine_kind(machine.isa).isa
    words: codes.Words = []
    for register in registers(kind):
        words += _set(kind, isa, register, codes._sane(plain, register.name))
    if kind == "tiles":
        words += _filled(kind, isa)
    if point.register is not None:
        words += _set(kind, isa, point.register, point.value)
    given = {} if point.register is not None else {point.name: point.value}
    sources = {"rs1": 29, "rs2": 30} if kind == "nmp" else {}
    if kind == "nmp":
        words += codes._li(isa, 29, 0x8000_0000) + codes._li(isa, 30, 0)
    words.append(codes._encoded(point.item, plain, **(sources | given)))
    words += _end(kind, isa)
    head = codes._template(plain) if kind == "tiles-dma" else b""
    constants = (head + bytes(range(256)) * (codes.CONSTANT_BYTES // 256))[: codes.CONSTANT_BYTES]
    return codes.program(machine, words, constants)


def _filled(kind: str, isa: Isa) -> codes.Words:
    """Loads that write all memories of a tile machine with a mover: unwritten ones trap first."""
    from tvm_npu.sim.tiles.isa import TileRegister

    words: codes.Words = []
    for memory in range(4):
        words += _set(kind, isa, TileRegister.COUNT_INNER, 1)
        words += _set(kind, isa, TileRegister.COUNT_OUTER, 1)
        words += _set(kind, isa, TileRegister.RUN_BYTES, 256 if memory == 3 else 2048)
        words.append(isa.encode("tload", mem=memory, base=4, stream=0))
    return words


def _set(kind: str, isa: Isa, register: Any, value: int) -> codes.Words:
    if kind == "nmp":
        value = ((value + (1 << 31)) & WORD) - (1 << 31)
        name = "nmp_mcfg" if type(register).__name__ == "MacRegister" else "nmp_dcfg"
        return [*codes._li(isa, 31, value), isa.encode(name, creg=int(register), rs1=31)]
    if kind == "snowflake":
        low = ((value + (1 << 21)) & 0x3FFFFF) - (1 << 21)
        return [isa.encode("movi", dest=register, value=low)]
    low = ((value + (1 << 18)) & 0x7FFFF) - (1 << 18)
    return [
        isa.encode("tset", creg=register, imm=low),
        isa.encode("tsetu", creg=register, upper=(value >> 19) & 0x1FFF),
    ]


def _end(kind: str, isa: Isa) -> codes.Words:
    if kind == "nmp":
        return [*codes._li(isa, 10, 0), *codes._li(isa, 17, 93), isa.encode("ecall")]
    if kind == "snowflake":
        from tvm_npu.sim.snowflake.isa import Wait

        return [isa.encode("sync", what=int(Wait.END), pending=0)]
    return [isa.encode("tend")]


def work(kind: str, step: int, first: int) -> None:
    """In a child: a line of JSON before and after each case."""
    import warnings

    from fuzzing.targets import TARGETS, outcome

    warnings.simplefilter("ignore")
    target, chosen = TARGETS[f"sim-{kind}"], list(points(kind))[::step]
    outcome(target, case(kind, chosen[0]))  # what compiles, compiles now
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for number in range(first, len(chosen)):
        print(json.dumps({"begin": number}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        found = outcome(target, case(kind, chosen[number]))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"end": number, "found": found}), flush=True)


def outcomes(kind: str, step: int, cache: Path | None) -> Iterator[tuple[Point, str]]:
    """What becomes of each ``step``-th point; ``bad ...`` is a fault. Code that checks bounds is
    kept in ``cache``; None: code that does not is run."""
    chosen, first = list(points(kind))[::step], 0
    environment = dict(os.environ)
    if cache is not None:
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    while first < len(chosen):
        command = [sys.executable, "-W", "ignore", "-m", "fuzzing.grid", "--work", kind, str(step)]
        with subprocess.Popen(
            [*command, str(first)], env=environment, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            begun = None
            for line in child.stdout:
                row = json.loads(line)
                if "begin" in row:
                    begun = row["begin"]
                else:
                    yield chosen[row["end"]], row["found"]
                    first, begun = row["end"] + 1, None
        if begun is not None:
            yield chosen[begun], f"bad exit code {child.returncode}"
            first = begun + 1
        elif first < len(chosen):
            raise SystemExit(f"the process for {kind} does not start: {child.returncode}")


def main(kind: str, step: str = "1", cache: str = "") -> int:
    counted: Counter[str] = Counter()
    for point, found in outcomes(kind, int(step), Path(cache) if cache else None):
        counted[found] += 1
        if found.startswith("bad"):
            print(f"{point.item.mnemonic} {point.name} = {point.value}: {found}", flush=True)
    for found, count in counted.most_common():
        print(f"{kind}: {count} {found}")
    return any(found.startswith("bad") for found in counted)


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main(*sys.argv[1:]))
