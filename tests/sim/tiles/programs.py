"""Hand-made tile programs: text, data, a run, and what is in memory afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.simulator import TileSimulator

BASE = 0x8000_0000
SEGMENT_BYTES = 1 << 20
CONSTANTS, ACTIVATIONS = BASE, BASE + SEGMENT_BYTES
DRAM_BYTES = 2 * SEGMENT_BYTES
SEGMENTS = {
    TileMemory.CONSTANTS: (CONSTANTS, SEGMENT_BYTES),
    TileMemory.ACTIVATIONS: (ACTIVATIONS, SEGMENT_BYTES),
}
ON_CHIP = TileMemory.INPUT | TileMemory.WEIGHT << 3 | TileMemory.OUTPUT << 6
"""OPERANDS: each in the memory that is named after it."""

WINDOW = {
    "KERNEL_ROWS": 1, "KERNEL_COLUMNS": 1, "STRIDE_ROWS": 1, "STRIDE_COLUMNS": 1,
    "DILATION_ROWS": 1, "DILATION_COLUMNS": 1, "GROUPS": 1,
}  # fmt: skip


def machine(**changes: Any) -> TileMachine:
    """Small split memories, a 2 x 4 array over OC (rows) and IC; keys change whole tables' keys."""
    values = load_machine("setup-a").model_dump(exclude_none=True)
    values["name"] = "small"
    values["memories"] = {
        "input_bytes": 4096, "weight_bytes": 4096, "output_bytes": 8192, "bias_bytes": 256,
    }  # fmt: skip
    values["array"] |= {"width": 4, "height": 2, "setup_cycles": 10.0}
    values["mover"] = {"setup_cycles": 20.0, "segment_cycles": 3.0, "bytes_per_cycle": 4.0}
    for table, keys in changes.items():
        values[table] = values[table] | keys if isinstance(keys, dict) else keys
    if "shared_bytes" in values["memories"]:
        values["memories"] = {k: values["memories"][k] for k in ("shared_bytes", "bias_bytes")}
    return TileMachine.model_validate(values)


def sets(**values: int) -> str:
    """Text that sets configuration registers."""
    lines = []
    for name, value in values.items():
        register = TileRegister[name].name.lower()
        lines.append(f"tset {register}, {((value + (1 << 18)) & 0x7FFFF) - (1 << 18)}")
        if not -(1 << 18) <= value < 1 << 18:
            lines.append(f"tsetu {register}, {(value >> 19) & 0x1FFF}")
    return "\n".join(lines) + "\n"


def load(memory: str, address: int, size: int, at: int = 0, base: str = "constants") -> str:
    """One run from outside to chip."""
    return (
        sets(ADDRESS=address, CHIP_OFFSET=at, RUN_BYTES=size, COUNT_INNER=1, COUNT_OUTER=1)
        + f"tload {memory}, {base}, other\n"
    )


def store(memory: str, address: int, size: int, at: int = 0) -> str:
    return (
        sets(ADDRESS=address, CHIP_OFFSET=at, RUN_BYTES=size, COUNT_INNER=1, COUNT_OUTER=1)
        + f"tstore {memory}, activations, out\n"
    )


def words(text: str) -> np.ndarray:
    return assemble(text, isa=TILE_ISA)


def simulator(text: str, on: TileMachine | None = None, **options: Any) -> TileSimulator:
    return TileSimulator(on or machine(), words(text), SEGMENTS, DRAM_BYTES, **options)


def run(
    text: str,
    constants: Any = (),
    on: TileMachine | None = None,
    *,
    activations: Any = (),
    **options: Any,
) -> tuple[TileSimulator, RunStatistics]:
    """Runs with int32 (or typed) arrays at the beginning of both segments."""
    found = simulator(text, on, **options)
    for address, data in ((CONSTANTS, constants), (ACTIVATIONS, activations)):
        array = data if isinstance(data, np.ndarray) else np.array(data, np.int32)
        found.write(address, array)
    return found, found.run()


def activations(found: TileSimulator, count: int, kind: Any = np.int32, at: int = 0) -> np.ndarray:
    """Numbers in ACTIVATIONS after a run."""
    begin = SEGMENT_BYTES + at
    return found.dram[begin : begin + count * np.dtype(kind).itemsize].view(kind).copy()
