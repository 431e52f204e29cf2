"""tgo and twait: what DMA programs move, when the core waits, and what traps."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.sim.tiles.programs import activations, run, sets, simulator
from tvm_npu.codegen.parts.pl330.boxes import RunShape
from tvm_npu.codegen.parts.pl330.transfer import TransferLimits, transfer_template
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

ZYNQ = load_machine("zynq-7020")
assert isinstance(ZYNQ, TileMachine)
STORE_AT = 4096
"""Byte of CONSTANTS where the template of a store lies; the one of a load lies at 0."""
COUNT = 64


def template(direction: Any, event: int) -> bytes:
    """64 words in a row, as the table of instructions says of tgo."""
    made = transfer_template(
        RunShape(4 * COUNT, 1, 0, 1, 0), 0, 0, direction=direction, event=event,
        limits=TransferLimits(8, 65536),
    )  # fmt: skip
    numbers = [len(made.program), made.on_chip_address, made.event, len(made.ddr_addresses)]
    numbers += [number for pair in made.ddr_addresses for number in pair]
    return struct.pack(f"<{len(numbers)}I", *numbers) + made.program


def constants() -> np.ndarray:
    data = bytearray(2 * STORE_AT)
    for at, content in ((0, template("load", 0)), (STORE_AT, template("store", 1))):
        data[at : at + len(content)] = content
    return np.frombuffer(bytes(data), np.uint8)


def go(direction: str, address: int, chip: int, channel: int) -> str:
    text = sets(
        ADDRESS=address, CHIP_OFFSET=chip, EXTENT_BYTES=4 * COUNT, MOVED_BYTES=4 * COUNT,
        PROGRAM=0 if direction == "load" else STORE_AT,
    )  # fmt: skip
    stream = "in" if direction == "load" else "out"
    return text + f"tgo input, activations, {stream}, {channel}, {direction}\n"


DATA = np.random.default_rng(9).integers(-128, 127, 2 * COUNT).astype(np.int32)
COPY = sets(OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=COUNT, LOW=-128, HIGH=127)


def copy(source: int, target: int) -> str:
    return sets(IN_OFFSET=source, OUT_OFFSET=target) + "tvec copy\n"


def test_programs_move_what_the_core_works_on() -> None:
    """Load, copy, store; the second tile comes while the core works on the first."""
    text = COPY + go("load", 0, 0, 0) + "twait 0\n" + go("load", 256, 256, 0) + copy(0, 512)
    text += "twait 0\n" + copy(256, 768) + go("store", 8192, 512, 2) + "twait 1\n"
    text += go("store", 8448, 768, 2) + "tend\n"
    found, statistics = run(text, constants(), ZYNQ, activations=DATA)
    assert activations(found, 2 * COUNT, at=8192).tolist() == DATA.tolist()
    assert statistics.loaded_bytes == {"in": 512} and statistics.stored_bytes == {"out": 512}
    found.write(0x8000_0000 + (1 << 20) + 8192, np.zeros(2 * COUNT, np.int32))
    assert found.run(timing=False).cycles == 0
    assert activations(found, 2 * COUNT, at=8192).tolist() == DATA.tolist()


def test_a_transfer_beside_the_core_costs_less_than_one_behind_it() -> None:
    first = COPY + go("load", 0, 0, 0) + "twait 0\n"
    beside = first + go("load", 256, 256, 0) + copy(0, 512) + "twait 0\ntend\n"
    behind = first + copy(0, 512) + go("load", 256, 256, 0) + "twait 0\ntend\n"
    one, other = (
        run(text, constants(), ZYNQ, activations=DATA)[1].cycles for text in (beside, behind)
    )
    assert one < other


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (COPY + go("load", 0, 0, 0) + copy(0, 512), "RACE",
         "bytes 0..256 of the shared memory .* channel 0 of the DMA controller may be moving"),
        (go("load", 0, 0, 0) + "twait 0\n" + go("store", 0, 0, 1) + COPY
         + sets(OUT_OFFSET=252, OUT_COLUMNS=1) + "tfill", "RACE", "bytes 252..256"),
        (go("load", 0, 0, 0) + go("load", 256, 128, 1), "RACE", "bytes 128..384 .* channel 0"),
        (go("load", 0, 0, 0) + "twait 5", "DMA", "5"),
        (sets(PROGRAM=1 << 20) + go("load", 0, 0, 0).replace("tset program, 0", "tset fill, 0"),
         "BAD_TEMPLATE", "no DMA program at byte 1048576 of CONSTANTS: 4 words at"),
        (go("load", 1 << 20, 0, 0), "TRANSFER_OUTSIDE", "of segment ACTIVATIONS, which has"),
        (go("load", 0, 262140, 0), "TILE_OUTSIDE", "CHIP_OFFSET .*262140..262396"),
        (go("store", 0, 64, 0), "NOT_WRITTEN", "byte 64 of the shared memory"),
        ("tgo input, constants, out, 0, store", "WRONG_MEMORY", "CONSTANTS cannot be used"),
        ("tgo activations, activations, in, 0, load", "WRONG_MEMORY", "ACTIVATIONS cannot"),
        ("tgo input, activations, 7, 0, load", "ILLEGAL_INSTRUCTION", "illegal instruction"),
        ("tload input, constants, in", "NO_UNIT", "machine zynq-7020 has no mover"),
    ],
)  # fmt: skip
def test_traps(text: str, code: str, message: str) -> None:
    found = simulator(text + "\ntend\n", ZYNQ)
    found.write(0x8000_0000, constants())
    for _ in range(2):
        with pytest.raises(Trap, match=message) as caught:
            found.run()
        assert caught.value.code == TileTrapCode[code]
