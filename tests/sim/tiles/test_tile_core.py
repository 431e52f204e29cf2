"""A core's operands: on chip, or outside of it in a part of a larger tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.tiles.programs import (
    WINDOW,
    activations,
    load,
    run,
    sets,
    simulator,
    store,
    words,
)
from tests.sim.tiles.reference import convolution, requantized
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

INPUT, CONSTANTS, ACTIVATIONS = (
    TileMemory.INPUT, TileMemory.CONSTANTS, TileMemory.ACTIVATIONS
)  # fmt: skip


def core(**words: int) -> TileMachine:
    """The Zynq's core with a mover instead of its DMA controller."""
    values: dict[str, Any] = load_machine("zynq-7020").model_dump(exclude_none=True)
    del values["dmac"]
    values["mover"] = {"setup_cycles": 20.0, "segment_cycles": 3.0, "bytes_per_cycle": 4.0}
    values["words"] |= words
    found = machine_from_dict(values)
    assert isinstance(found, TileMachine)
    return found


def operands(first: int, second: int, result: int) -> int:
    return first | second << 3 | result << 6


TENSOR = np.random.default_rng(5).integers(-128, 128, (5, 9, 10)).astype(np.int32)
FILTERS = np.random.default_rng(6).integers(-128, 128, (4, 3, 3, 3)).astype(np.int32)
OUT = 4096
"""Byte of ACTIVATIONS where results go, into a tensor [4][6][8]."""


def conv_text(first: int, second: int, result: int, width: int = 4) -> str:
    """Channels 1 to 3, rows 2 to 6, columns 3 to 8 of TENSOR with three of the filters, to rows 1
    to 3 and columns 2 to 5 of the result."""
    text = sets(
        **(WINDOW | {"KERNEL_ROWS": 3, "KERNEL_COLUMNS": 3}), OPERANDS=operands(first, second,
        result), IN_CHANNELS=3, IN_ROWS=5, IN_COLUMNS=6, OUT_CHANNELS=3, OUT_ROWS=3, OUT_COLUMNS=4,
        IN_OFFSET=(1 * 90 + 2 * 10 + 3) * 4, IN_ROW_BYTES=40, IN_CHANNEL_BYTES=360,
        W_OFFSET=108, OUT_OFFSET=OUT + (8 + 2) * width, OUT_ROW_BYTES=8 * width,
        OUT_CHANNEL_BYTES=48 * width,
    )  # fmt: skip
    return text


def sums() -> np.ndarray:
    return convolution(TENSOR[1:4, 2:7, 3:9], FILTERS[1:], (3, 4))


def test_rows_that_lie_apart_are_work() -> None:
    """To begin with one takes longer than its elements where these are few."""
    text = sets(OPERANDS=operands(INPUT, INPUT, ACTIVATIONS), OUT_CHANNELS=1, OUT_ROWS=1000,
                OUT_COLUMNS=1, OUT_ROW_BYTES=8, FILL=1) + "tfill\ntend\n"  # fmt: skip
    simulator(text, core(), most_work=40_000).run()
    with pytest.raises(Trap) as caught:
        simulator(text, core(), most_work=20_000).run()
    assert caught.value.beyond_work


def test_a_convolution_outside_of_the_chip() -> None:
    """What lies around the result in its tensor stays."""
    text = conv_text(ACTIVATIONS, CONSTANTS, ACTIVATIONS) + "tconv zero\ntconv keep\n"
    data = np.full(2048, 77, np.int32)
    data[: TENSOR.size] = TENSOR.reshape(-1)
    found, statistics = run(text + "tend\n", FILTERS, core(), activations=data)
    result = activations(found, 3 * 48, at=OUT).reshape(3, 6, 8)
    expected = np.full((3, 6, 8), 77)
    expected[:, 1:4, 2:6] = 2 * sums()
    assert result.tolist() == expected.tolist()
    assert statistics.macs == 2 * 3 * 12 * 27 and statistics.cycles > 0


@pytest.mark.parametrize("precision", ["int8", "int16"])
def test_finishing_outside_of_the_chip(precision: Any) -> None:
    """Accumulators of four bytes become elements of four in place; wider ones are packed on chip
    and finished there."""
    on = core(int16_accumulator_bytes=4)
    text = load("bias", 4 * FILTERS.size, 12)
    text += conv_text(ACTIVATIONS, CONSTANTS, ACTIVATIONS) + "tconv zero\n"
    text += sets(IN_OFFSET=0, IN_ROW_BYTES=0, IN_CHANNEL_BYTES=0, SHIFT=6, SHIFT_A=1, SHIFT_B=3)
    text += sets(LOW=-100, HIGH=127) + "tfinish bias_residual\n"
    bias = np.array([1000, -20000, 30000], np.int32)
    data = np.zeros(2048, np.int32)
    data[: TENSOR.size] = TENSOR.reshape(-1)
    found, _ = run(
        text + "tend\n", np.concatenate([FILTERS.reshape(-1), bias]), on, activations=data,
        precision=precision,
    )  # fmt: skip
    residual = TENSOR.reshape(-1)[:36].reshape(3, 3, 4).astype(np.int64)
    total = ((sums() + bias[:, None, None]) << 1) + (residual << 3)
    expected = requantized(total, 6, -100, 127, 8 if precision == "int8" else 16)
    result = activations(found, 3 * 48, at=OUT).reshape(3, 6, 8)
    assert result[:, 1:4, 2:6].tolist() == expected.tolist()


def test_from_chip_to_the_outside_and_back() -> None:
    """Pitches count outside of the chip only; on chip operands are packed."""
    on = core()
    text = load("input", 0, 36 * 4) + sets(
        OPERANDS=operands(INPUT, INPUT, ACTIVATIONS), OUT_CHANNELS=3, OUT_ROWS=3, OUT_COLUMNS=4,
        OUT_OFFSET=OUT, OUT_ROW_BYTES=32, OUT_CHANNEL_BYTES=192, IN_ROW_BYTES=400, LOW=-128,
        HIGH=127,
    )  # fmt: skip
    text += "tvec copy\n"
    text += sets(
        OPERANDS=operands(ACTIVATIONS, INPUT, INPUT), IN_OFFSET=OUT, IN_ROW_BYTES=32,
        IN_CHANNEL_BYTES=192, W_OFFSET=0, OUT_OFFSET=1024, OUT_ROW_BYTES=999,
    )  # fmt: skip
    text += "tvec add\n" + sets(ADDRESS=0, CHIP_OFFSET=1024)
    text += "tstore input, activations, out\n"
    data = np.random.default_rng(1).integers(-60, 60, 36).astype(np.int32)
    found, _ = run(text + "tend\n", data, on)
    assert activations(found, 36).tolist() == (2 * data).tolist()
    result = activations(found, 3 * 48, at=OUT).reshape(3, 6, 8)
    assert result[:, :3, :4].reshape(-1).tolist() == data.tolist()


@pytest.mark.parametrize("kind", ["max", "average"])
def test_pooling_outside_of_the_chip(kind: str) -> None:
    text = sets(
        OPERANDS=operands(ACTIVATIONS, 0, ACTIVATIONS), IN_CHANNELS=2, OUT_CHANNELS=2, IN_ROWS=4,
        IN_COLUMNS=4, OUT_ROWS=2, OUT_COLUMNS=2, KERNEL_ROWS=2, KERNEL_COLUMNS=2, STRIDE_ROWS=2,
        STRIDE_COLUMNS=2, IN_OFFSET=4 * 13, IN_ROW_BYTES=40, IN_CHANNEL_BYTES=360, OUT_OFFSET=OUT,
        LOW=-128, HIGH=127, COUNT_ROW_END=4, COUNT_COLUMN_END=4,
    )  # fmt: skip
    found, _ = run(text + f"tpool {kind}\ntend\n", (), core(), activations=TENSOR)
    windows = TENSOR[:2, 1:5, 3:7].reshape(2, 2, 2, 2, 2).astype(np.int64)
    expected = windows.max(axis=(2, 4))
    if kind == "average":
        expected = (2 * windows.sum(axis=(2, 4)) + 4) // 8
    assert activations(found, 8, at=OUT).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("registers", "code", "message"),
    [
        ({"IN_ROW_BYTES": 20}, "BAD_REGISTER", "IN_ROW_BYTES is 20; allowed here are 24 to"),
        ({"IN_CHANNEL_BYTES": 180}, "BAD_REGISTER", "IN_CHANNEL_BYTES is 180; allowed here are"),
        ({"OUT_ROW_BYTES": 12}, "BAD_REGISTER", "OUT_ROW_BYTES is 12; allowed here are 16 to"),
        ({"OUT_CHANNEL_BYTES": 40}, "BAD_REGISTER", "OUT_CHANNEL_BYTES is 40"),
        ({"IN_OFFSET": (1 << 20) - 600}, "TILE_OUTSIDE", "of ACTIVATIONS, which has 1048576"),
        ({"OPERANDS": operands(5, 4, 4)}, "WRONG_MEMORY", "CONSTANTS cannot be used here"),
        ({"OPERANDS": operands(5, 4, 3)}, "WRONG_MEMORY", "the bias memory cannot be used here"),
    ],
)
def test_traps_of_operands_outside(registers: dict[str, int], code: str, message: str) -> None:
    text = conv_text(ACTIVATIONS, CONSTANTS, ACTIVATIONS) + sets(**registers) + "tconv zero\n"
    with pytest.raises(Trap, match=message) as caught:
        run(text + "tend\n", FILTERS, core(), activations=TENSOR)
    assert caught.value.code == TileTrapCode[code]


def test_a_core_waits_for_stores_that_it_reads() -> None:
    """Interlocked outside of the chip, too: the tensor is being stored, or something else is."""
    on = core()
    moves = load("input", 0, 4096, base="activations")
    conv = conv_text(ACTIVATIONS, CONSTANTS, ACTIVATIONS) + "tconv zero\n"
    each = 20 + 3 + 1024

    def cycles(text: str) -> float:
        return run(text + "tend\n", FILTERS, on, activations=TENSOR)[1].cycles

    stored = len(words(moves)) + 2 * each
    alone = cycles(conv) - len(words(conv)) - 1
    assert cycles(moves + store("input", 0, 4096) + conv) == stored + alone + 1
    other = moves + store("input", 65536, 4096) + conv
    assert cycles(other) == max(len(words(other)) + alone + 1, stored)


def test_a_tile_is_read_anew_when_its_rows_lie_elsewhere() -> None:
    """The second convolution differs from the first in the distance of the rows alone."""
    same = conv_text(ACTIVATIONS, CONSTANTS, ACTIVATIONS)
    data = np.full(2048, 77, np.int32)
    data[: TENSOR.size] = TENSOR.reshape(-1)
    results = []
    for before in ("", sets(IN_ROW_BYTES=44) + "tconv zero\n"):
        text = same + before + sets(IN_ROW_BYTES=40) + "tconv zero\ntend\n"
        results.append(activations(run(text, FILTERS, core(), activations=data)[0], 3 * 48, at=OUT))
    assert np.array_equal(*results)
