"""Hand-made Snowflake programs: text, packing into instruction banks, a run, what is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine, machine_from_dict, of_description
from tvm_npu.sim.snowflake.isa import BANK_INSTRUCTIONS, SNOWFLAKE_ISA
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator

CONSTANT_BYTES = 1 << 20
ACTIVATIONS = CONSTANT_BYTES
"""Where activations begin, as instructions see it."""

NOP = "movi r31, 0"


def machine(name: str = "snowflake-1cc", **changes: Any) -> SnowflakeMachine:
    """A built-in machine with other keys in its tables."""
    values = load_machine(name).model_dump()
    for table, keys in changes.items():
        values[table] = values[table] | keys if isinstance(keys, dict) else keys
    return of_description(SnowflakeMachine, machine_from_dict(values))


def words(text: str) -> np.ndarray:
    return assemble(text, isa=SNOWFLAKE_ISA)


def packed(chunks: Sequence[str]) -> np.ndarray:
    """Code that runs chunk after chunk: no chunk crosses a bank, each bank loads the next one and
    jumps to it. Uses r28 to r31."""
    room = BANK_INSTRUCTIONS - 4 - 5
    banks: list[list[np.ndarray]] = [[]]
    for chunk in chunks:
        code = words(chunk)
        assert len(code) <= room
        if sum(map(len, banks[-1])) + len(code) > room:
            banks.append([])
        banks[-1].append(code)
    images = []
    for number, bank in enumerate(banks):
        body = np.concatenate(bank)
        if number + 1 < len(banks):
            size = 4 * BANK_INSTRUCTIONS
            place = (number + 1) % 2 * BANK_INSTRUCTIONS
            load = words(
                f"movi r28, {(number + 1) * size}\nmovi r29, {place}\n"
                f"movi r30, {2 * BANK_INSTRUCTIONS}\n"
                "ld icache, r28, r29, r30, 0, all, own, other\n"
            )
            here = len(load) + len(body)
            jump = words(f"beq r31, r31, {4 * (BANK_INSTRUCTIONS - here)}\n" + f"{NOP}\n" * 4)
            body = np.concatenate([load, body, jump])
        images.append(np.pad(body, (0, BANK_INSTRUCTIONS - len(body))))
    return np.concatenate(images)


def simulator(
    text: str | Sequence[str],
    on: SnowflakeMachine | None = None,
    constants: np.ndarray | Sequence[int] = (),
    activations: np.ndarray | Sequence[int] = (),
    size_bytes: int = 1 << 20,
    **options: Any,
) -> SnowflakeSimulator:
    """A program a cluster (or one for all), with int16 words at the begin of both segments."""
    on = on or machine()
    texts = [text] * on.clusters.count if isinstance(text, str) else list(text)
    base = on.dram.base_address
    segments = [
        Segment(base, CONSTANT_BYTES, False),
        Segment(base + ACTIVATIONS, size_bytes, True),
    ]
    found = SnowflakeSimulator(
        on, [words(one) for one in texts], segments, ACTIVATIONS + size_bytes, **options
    )
    found.write(base, np.asarray(constants, np.int16))
    found.write(base + ACTIVATIONS, np.asarray(activations, np.int16))
    return found


def results(found: SnowflakeSimulator, count: int, at: int = 0) -> np.ndarray:
    """Words of activations after a run, from word ``at`` on."""
    begin = ACTIVATIONS + 2 * at
    return found.dram[begin : begin + 2 * count].view(np.int16).copy()


def sets(**values: int) -> str:
    """Sets registers: ``r1=5, out=7``."""
    lines = []
    for name, value in values.items():
        if -(1 << 21) <= value < 1 << 21:
            lines.append(f"movi {name}, {value}")
        else:
            lines.append(f"movi r31, {value >> 12}")
            lines.append(f"mov r31, r31, 12\naddi {name}, r31, {value & 0xFFF}")
    return "\n".join(lines) + "\n"


def load(
    buffer: str, memory: int, place: int, count: int, cus: int = 15, vmac: str = "all",
    stream: str = "in", shared: str = "own",
) -> str:  # fmt: skip
    """ld of one run, memory in bytes; uses r25 to r27."""
    return (
        sets(r25=memory, r26=place, r27=count)
        + f"ld {buffer}, r25, r26, r27, {cus}, {vmac}, {shared}, {stream}\n"
    )


def store(memory: int, place: int, count: int, cu: int = 0) -> str:
    """tmov of one run; uses r22 to r24."""
    return sets(r22=memory, r23=place, r24=count) + f"tmov r22, r23, r24, {cu}, out\n"


SYNC, END = "sync all, 0\n", "sync end, 0\n"
