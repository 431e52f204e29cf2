"""Programs that no compiler makes: valid files whose instructions reach for what is not there.

``python -m tests.trust.forged [PART]`` runs those whose name has PART in it, all without one, and
prints two lines of JSON each: before, name and expected trap; after, what the run ended in.
A simulator that believes one of them may read or write anywhere in its process, so the tests run
them in a process of their own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.sim.tiles.programs import WINDOW, sets
from tests.sim.tiles.test_tile_dma_control import template, with_event, zynq
from tvm_npu.codegen.program.format import Program, Segment
from tvm_npu.codegen.program.parts import DEBUG, RELOCATION, SegmentSize
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.kinds import machine_kind
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.traps import Trap

MB = 1 << 20


def program_file(
    machine: MachineDescription,
    code: str | np.ndarray,
    constants: bytes = bytes(4096),
    activation_bytes: int = 4096,
    precision: str | None = None,
) -> bytes:
    """A program file around instructions: no layers, no tensors, valid sums."""
    text = isinstance(code, str)
    words = assemble(code, isa=machine_kind(machine.isa).isa) if text else code
    sizes = {
        Segment.CODE: 4 * len(words), Segment.CONSTANTS: len(constants),
        Segment.ACTIVATIONS: activation_bytes, Segment.STATES: 0,
    }  # fmt: skip
    return Program(
        name="forged",
        machine=machine.model_dump(exclude_none=True),
        precision=precision or machine.default_precision,  # type: ignore[arg-type]
        planner="nobody",
        inputs=(), outputs=(), intermediates=(),
        segments={segment: SegmentSize(size, 64) for segment, size in sizes.items()},
        parameter_offset=0, layers=(), scopes=({},),
        code=np.asarray(words, np.uint32), constants=constants,
        relocations=np.array([], RELOCATION),
        debug=np.array([(-1, 0, 0)] * len(words), DEBUG),
    ).to_bytes()  # fmt: skip


def array_machine(**memories: int) -> MachineDescription:
    """An array with a byte an element."""
    values = load_machine("setup-a").model_dump(exclude_none=True)
    values["words"] = {
        "int8_bytes": 1, "int16_bytes": 2, "int8_accumulator_bytes": 4,
        "int16_accumulator_bytes": 8,
    }  # fmt: skip
    values["memories"] = {
        "input_bytes": MB, "weight_bytes": MB, "output_bytes": MB, "bias_bytes": 4096
    } | memories
    return machine_from_dict(values | {"name": "forged"})


def fill(memory: str, size: int) -> str:
    """Writes all of a memory: the same 4096 bytes of CONSTANTS again and again."""
    return (
        sets(ADDRESS=0, CHIP_OFFSET=0, RUN_BYTES=4096, COUNT_INNER=size // 4096, STRIDE_INNER=0)
        + sets(COUNT_OUTER=1) + f"tload {memory}, constants, other\n"
    )  # fmt: skip


CHIP = TileMemory.INPUT | TileMemory.WEIGHT << 3 | TileMemory.OUTPUT << 6
OUTSIDE = TileMemory.ACTIVATIONS | TileMemory.WEIGHT << 3 | TileMemory.OUTPUT << 6
REQUANTIZE = sets(LOW=-128, HIGH=127)


def tile_programs() -> Iterator[tuple[str, str, bytes]]:
    """(name, code of the trap that is right, program file)."""
    core = zynq(dmac={"events": 16})

    def tall(channels: int, row_bytes: int) -> str:
        """A tile of 2**20 rows whose bytes, counted in 64 bits, are few."""
        return sets(
            OPERANDS=OUTSIDE, OUT_CHANNELS=channels, OUT_ROWS=1 << 20, OUT_COLUMNS=1,
            IN_ROW_BYTES=row_bytes, IN_CHANNEL_BYTES=0,
        )  # fmt: skip

    # (channels - 1) * rows * row bytes = 2**64 - 2**40; the rows of one channel were counted as
    # 2**40 at most: 4 bytes altogether.
    text = REQUANTIZE + tall((1 << 18) + 1, 4 * ((1 << 24) - 1)) + "tvec copy\ntend\n"
    yield "tiles: rows and channels that wrap", "TILE_OUTSIDE", program_file(core, text)

    deep = array_machine(weight_bytes=2 * MB)
    conv = sets(
        OPERANDS=CHIP, **WINDOW, IN_CHANNELS=1, IN_ROWS=1, IN_COLUMNS=1, OUT_CHANNELS=1, OUT_ROWS=1,
        OUT_COLUMNS=1,
    )  # fmt: skip
    text = fill("weight", 2 * MB) + fill("input", MB) + conv
    for rows, columns, end in (
        (1 << 20, 1 << 20, "TILE_OUTSIDE"), (1 << 11, 1 << 11, "TILE_OUTSIDE"), (1 << 18, 5, "ran"),
    ):  # fmt: skip
        large = text + sets(KERNEL_ROWS=rows, KERNEL_COLUMNS=columns) + "tconv zero\ntend\n"
        yield f"tiles: a kernel of {rows} x {columns}", end, program_file(deep, large)
    large = text + sets(KERNEL_ROWS=1 << 18, KERNEL_COLUMNS=9, IN_CHANNELS=2, STRIDE_COLUMNS=3)
    large += "tconv zero\ntend\n"
    yield "tiles: a kernel of two channels", "TILE_OUTSIDE", program_file(deep, large)

    wide = array_machine(input_bytes=16 * MB, weight_bytes=16 * MB)
    for stride in (1, 3):
        many = fill("weight", 16 * MB) + fill("input", 16 * MB) + conv
        many += sets(
            GROUPS=1 << 12, OUT_CHANNELS=1 << 12, IN_CHANNELS=1 << 12, IN_ROWS=4, IN_COLUMNS=4,
            STRIDE_COLUMNS=stride, OUT_COLUMNS=2,
        )  # fmt: skip
        name = f"tiles: groups of channels, stride {stride}"
        yield name, "TILE_OUTSIDE", program_file(wide, many + "tconv zero\ntend\n")

    for event in (16, (1 << 32) - 1):
        constants = with_event(template(), event).ljust(4096, b"\0")
        text = sets(
            PROGRAM=0, ADDRESS=1024, CHIP_OFFSET=0, EXTENT_BYTES=64, MOVED_BYTES=64
        ) + "tgo input, constants, other, 0, load\n"  # fmt: skip
        for tail in ("tend\n", f"twait {event % 32}\ntend\n"):
            name = f"pl330: event {event}, then {tail.splitlines()[0]}"
            yield name, "BAD_TEMPLATE", program_file(core, text + tail, constants)


SOURCES: tuple[Callable[[], Iterator[tuple[str, str, bytes]]], ...] = (tile_programs,)


def outcome(data: bytes) -> str:
    """What a run of a program file ends in."""
    try:
        Session(data).run_fixed([])
    except Trap as trap:
        return str(trap.code.name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "ran"


def main(part: str = "") -> None:
    for source in SOURCES:
        for name, expected, data in source():
            if part not in name:
                continue
            print(json.dumps({"name": name, "expected": expected}), flush=True)
            print(json.dumps({"found": outcome(data)}), flush=True)


def collected(lines: str) -> dict[str, Any]:
    """By program: (expected, found); found is None of the one that ended the process."""
    found: dict[str, Any] = {}
    name = ""
    for line in map(json.loads, lines.splitlines()):
        if "name" in line:
            name = line["name"]
            found[name] = (line["expected"], None)
        else:
            found[name] = (found[name][0], line["found"])
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
