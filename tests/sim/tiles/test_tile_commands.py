"""The values of every command, on hand-made programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.tiles.programs import (
    ACTIVATIONS,
    ON_CHIP,
    SEGMENT_BYTES,
    WINDOW,
    activations,
    load,
    machine,
    run,
    sets,
    simulator,
    store,
)
from tests.sim.tiles.reference import convolution, requantized
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.traps import Trap

INT8, INT16 = (-128, 127), (-32768, 32767)
BYTES = {"int8_bytes": 1, "int16_bytes": 2}


def test_registers_hold_32_signed_bits() -> None:
    """tset sign-extends, tsetu replaces what is above bit 18; seen through the residual's shift."""
    text = sets(OPERANDS=ON_CHIP, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=1)
    text += "tset fill, -1\ntsetu fill, 0x1fff\ntfill\n" + store("output", 0, 4)
    text += "tset fill, 5\ntsetu fill, 0\ntfill\n" + store("output", 4, 4)
    found, _ = run(text + "tend\n")
    assert activations(found, 2).tolist() == [-1, 5]
    for value in (0, 1, -1, 262143, 262144, -262144, -262145, 2**31 - 1, -(2**31), 0x12345678):
        found, _ = run(sets(ADDRESS=value) + "tend\n")
        assert int(found._state.registers[0]) == value


def test_transfers_move_runs() -> None:
    data = np.arange(1000, dtype=np.int32)
    text = sets(
        ADDRESS=8, CHIP_OFFSET=4, RUN_BYTES=12, COUNT_INNER=3, STRIDE_INNER=40, COUNT_OUTER=2,
        STRIDE_OUTER=400,
    )  # fmt: skip
    text += "tload input, constants, in\n"
    text += sets(ADDRESS=100, RUN_BYTES=24, COUNT_INNER=1, COUNT_OUTER=3, STRIDE_OUTER=28)
    text += "tstore input, activations, partial\ntend\n"
    found, statistics = run(text, data)
    runs = [data[2 + 10 * k + 100 * j :][:3] for j in range(2) for k in range(3)]
    there = activations(found, 30, at=100)
    expected = np.zeros(30, np.int32)
    for k, row in enumerate(np.concatenate(runs).reshape(3, 6)):
        expected[7 * k : 7 * k + 6] = row
    assert there.tolist() == expected.tolist()
    assert statistics.loaded_bytes == {"in": 72}
    assert statistics.stored_bytes == {"partial": 72}


def test_groups_of_a_convolution_count() -> None:
    groups = 500
    text = load("input", 0, 2000) + load("weight", 0, 2000) + sets(
        OPERANDS=ON_CHIP, **(WINDOW | {"GROUPS": groups}), IN_CHANNELS=1, IN_ROWS=1, IN_COLUMNS=1,
        OUT_CHANNELS=groups, OUT_ROWS=1, OUT_COLUMNS=1,
    ) + "tconv zero\ntend\n"  # fmt: skip
    simulator(text, most_work=64 * groups + 20_000).run()
    with pytest.raises(Trap):
        simulator(text, most_work=64 * groups).run()


def test_a_stride_of_zero_repeats() -> None:
    text = sets(RUN_BYTES=4, COUNT_INNER=3, STRIDE_INNER=0, COUNT_OUTER=1)
    text += "tload input, constants, in\n" + store("input", 0, 12) + "tend\n"
    found, _ = run(text, [7, 8])
    assert activations(found, 3).tolist() == [7, 7, 7]


def conv_program(
    x: np.ndarray, w: np.ndarray, out: tuple[int, int], kind: Any, accumulator: Any,
    where: tuple[int, int, int] = (0, 0, 0), **registers: int,
) -> str:  # fmt: skip
    size = np.dtype(kind).itemsize
    filters, depth, *kernel = w.shape
    sums = filters * out[0] * out[1] * np.dtype(accumulator).itemsize
    text = load("input", 0, x.size * size, where[0]) if x.size else ""
    text += load("weight", x.size * size, w.size * size, where[1])
    text += sets(
        **(WINDOW | {"KERNEL_ROWS": kernel[0], "KERNEL_COLUMNS": kernel[1]} | registers),
        OPERANDS=ON_CHIP, IN_OFFSET=where[0], W_OFFSET=where[1], OUT_OFFSET=where[2],
        IN_CHANNELS=depth, IN_ROWS=x.shape[1], IN_COLUMNS=x.shape[2],
        OUT_CHANNELS=filters, OUT_ROWS=out[0], OUT_COLUMNS=out[1],
    )  # fmt: skip
    return text + "tconv zero\n" + store("output", 0, sums, where[2]) + "tend\n"


def check_convolution(
    shape: tuple[int, int, int], filters: int, kernel: tuple[int, int], out: tuple[int, int],
    *, pad: tuple[int, int] = (0, 0), stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1), groups: int = 1, precision: Any = "int8",
    on: TileMachine | None = None, where: tuple[int, int, int] = (0, 0, 0),
) -> None:  # fmt: skip
    """tconv of extreme random values equals the reference."""
    on = on or machine()
    kind = f"<i{on.element_bytes(precision)}"
    accumulator = f"<i{on.accumulator_bytes(precision)}"
    random = np.random.default_rng(hash((shape, filters, kernel, groups)) % 1000)
    low, high = INT8 if precision == "int8" else INT16
    x = random.integers(low, high, shape, endpoint=True).astype(kind)
    w = random.integers(low, high, (filters, shape[0] // groups, *kernel), endpoint=True)
    w = w.astype(kind)
    x.reshape(-1)[: x.size // 2] = low
    w.reshape(-1)[: w.size // 2] = low
    text = conv_program(
        x, w, out, kind, accumulator, where, PAD_TOP=pad[0], PAD_LEFT=pad[1],
        STRIDE_ROWS=stride[0], STRIDE_COLUMNS=stride[1], DILATION_ROWS=dilation[0],
        DILATION_COLUMNS=dilation[1], GROUPS=groups,
    )  # fmt: skip
    data = np.concatenate([x.reshape(-1), w.reshape(-1)])
    found, statistics = run(text, data, on, precision=precision)
    expected = convolution(x, w, out, pad, stride, dilation, groups)
    assert activations(found, expected.size, accumulator).tolist() == expected.reshape(-1).tolist()
    assert statistics.macs == expected.size * w[0].size


@pytest.mark.parametrize("precision", ["int8", "int16"])
@pytest.mark.parametrize("bytes_", [{}, BYTES], ids=["wide", "narrow"])
def test_convolutions(precision: str, bytes_: dict[str, int]) -> None:
    def check(*args: Any, **kwargs: Any) -> None:
        check_convolution(*args, **kwargs, precision=precision, on=machine(words=bytes_))

    check((5, 6, 7), 3, (3, 3), (4, 5))
    check((5, 6, 7), 3, (3, 3), (6, 7), pad=(1, 1))
    check((3, 9, 8), 4, (3, 2), (4, 4), pad=(1, 0), stride=(2, 2))
    check((3, 9, 9), 2, (3, 3), (5, 5), dilation=(2, 2))
    check((3, 7, 9), 2, (2, 3), (4, 5), pad=(3, 5), dilation=(3, 4), stride=(1, 2))
    check((8, 4, 4), 6, (1, 1), (4, 4))
    check((8, 4, 4), 6, (1, 1), (2, 2), stride=(2, 2))
    check((40, 1, 1), 9, (1, 1), (1, 1))
    check((6, 5, 5), 6, (3, 3), (5, 5), pad=(1, 1), groups=6)
    check((3, 6, 6), 6, (3, 3), (3, 3), pad=(1, 1), stride=(2, 2), groups=3)
    check((2, 6, 6), 12, (3, 3), (4, 4), groups=2)
    check((6, 4, 4), 4, (2, 2), (3, 3), groups=2)
    check((6, 4, 4), 4, (1, 1), (4, 4), groups=2)


@pytest.mark.parametrize("where", [(1, 2, 3), (4, 8, 8), (2, 6, 4)])
def test_operands_at_any_byte(where: tuple[int, int, int]) -> None:
    check_convolution((3, 5, 5), 3, (3, 3), (5, 5), pad=(1, 1), where=where)
    check_convolution((3, 5, 5), 3, (3, 3), (5, 5), pad=(1, 1), where=where, precision="int16")
    check_convolution((4, 5, 5), 4, (3, 3), (3, 3), groups=4, where=where,
                      on=machine(words=BYTES), precision="int16")  # fmt: skip


def test_a_window_may_lie_wholly_in_the_padding() -> None:
    check_convolution((2, 1, 1), 2, (2, 2), (6, 6), pad=(3, 3))
    check_convolution((2, 0, 4), 2, (2, 2), (2, 4), pad=(2, 0))
    check_convolution((2, 3, 0), 2, (2, 2), (2, 4), pad=(0, 2))


def test_long_sums_are_exact() -> None:
    """4,096 products of -128 * -128 and one odd one: no float32 holds the sum."""
    on = machine(words=BYTES)
    x, w = np.full((4096, 1, 1), -128, np.int8), np.full((1, 4096, 1, 1), -128, np.int8)
    x[0], w[0, 0] = 1, 1
    text = conv_program(x, w, (1, 1), np.int8, np.int32)
    found, _ = run(text, np.concatenate([x.reshape(-1), w.reshape(-1)]), on)
    assert activations(found, 1).tolist() == [4095 * 16384 + 1]
    check_convolution((200, 4, 4), 2, (3, 3), (4, 4), pad=(1, 1), on=machine(
        words=BYTES, memories={"input_bytes": 4096, "weight_bytes": 4096}))  # fmt: skip


def test_im2col_in_blocks() -> None:
    """More than the simulator's buffer holds: 64 * 25 * 1024 elements."""
    check_convolution((64, 32, 32), 2, (5, 5), (32, 32), pad=(2, 2), on=load_machine("setup-b"))


def test_filters_at_a_pitch() -> None:
    x = np.arange(8, dtype=np.int32)
    w = np.array([1, 2, 99, 3, 4, 98, -1, -2], np.int32)
    text = conv_program(x.reshape(2, 2, 2), w.reshape(4, 2, 1, 1), (2, 2), np.int32, np.int32)
    text = text.replace("tconv", sets(W_FILTER_BYTES=12, OUT_CHANNELS=3) + "tconv")
    text = text.replace("tstore", sets(RUN_BYTES=48) + "tstore")
    found, _ = run(text, np.concatenate([x, w]))
    expected = np.array([[1, 2], [3, 4], [-1, -2]]) @ x.reshape(2, 4)
    assert activations(found, 12).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize(("precision", "kind"), [("int8", "<i4"), ("int16", "<i8")])
def test_sums_go_on(precision: Any, kind: str) -> None:
    """tconv keep adds, also to partial sums that have been outside; same tiles twice."""
    x, w = np.arange(4, dtype=np.int32), np.array([3, -5], np.int32)
    size = np.dtype(kind).itemsize
    text = load("input", 0, 16) + load("weight", 16, 8)
    text += sets(**WINDOW, OPERANDS=ON_CHIP, IN_CHANNELS=1, IN_ROWS=2, IN_COLUMNS=2)
    text += sets(OUT_CHANNELS=2, OUT_ROWS=2, OUT_COLUMNS=2) + "tconv zero\ntconv keep\n"
    text += store("output", 512, 8 * size) + sets(CHIP_OFFSET=1024, OUT_OFFSET=1024)
    text += "tload output, activations, partial\ntconv keep\n" + store("output", 0, 8 * size, 1024)
    found, _ = run(text + "tend\n", np.concatenate([x, w]), precision=precision)
    expected = 3 * np.outer(w, x)
    assert activations(found, 8, kind).tolist() == expected.reshape(-1).tolist()


def test_new_weights_and_new_input_at_the_same_place() -> None:
    """What the simulator keeps of a tile is void when the tile's bytes change."""
    x = np.arange(18, dtype=np.int32)
    w = np.arange(1, 9, dtype=np.int32)
    text = sets(OPERANDS=ON_CHIP, **(WINDOW | {"KERNEL_ROWS": 2, "KERNEL_COLUMNS": 2}))
    text += sets(IN_CHANNELS=1, IN_ROWS=3, IN_COLUMNS=3, OUT_CHANNELS=1, OUT_ROWS=2, OUT_COLUMNS=2)
    expected = []
    for step, (a, b) in enumerate([(0, 0), (0, 1), (1, 1), (1, 0), (0, 0)]):
        text += load("input", 36 * a, 36) + load("weight", 72 + 16 * b, 16)
        text += "tconv zero\n" + store("output", 16 * step, 16)
        tile, filter_ = x[9 * a : 9 * a + 9], w[4 * b : 4 * b + 4]
        expected += convolution(
            tile.reshape(1, 3, 3), filter_.reshape(1, 1, 2, 2), (2, 2)
        ).reshape(-1).tolist()  # fmt: skip
    found, _ = run(text + "tend\n", np.concatenate([x, w]))
    assert activations(found, 20).tolist() == expected


FINISH = [("plain", 0, 0), ("bias", 1, 0), ("residual", 0, 1), ("bias_residual", 1, 1)]


@pytest.mark.parametrize(("name", "bias", "residual"), FINISH)
@pytest.mark.parametrize(("shift", "low", "high"), [(5, -128, 127), (0, 0, 127), (-2, -100, 90)])
@pytest.mark.parametrize(("precision", "width"), [("int8", 4), ("int16", 8)])
def test_finish(
    name: str, bias: int, residual: int, shift: int, low: int, high: int, precision: Any,
    width: int,
) -> None:  # fmt: skip
    acc = np.array([[0, 15, 16, -16, -17, 5000], [-5000, 31, 1, -1, 2000, -48]], np.int64)
    biases, rest = np.array([100, -70000], np.int32), np.arange(-6, 6, dtype=np.int32) * 9
    sums = acc.astype(f"<i{width}").view(np.int32).reshape(-1)
    text = load("output", 0, sums.nbytes, 8) + load("bias", sums.nbytes, 8, 4)
    text += load("input", sums.nbytes + 8, 48)
    text += sets(OPERANDS=ON_CHIP, OUT_OFFSET=8, BIAS_OFFSET=4, IN_OFFSET=0, OUT_CHANNELS=2)
    text += sets(OUT_ROWS=2, OUT_COLUMNS=3, SHIFT=shift, LOW=low, HIGH=high, SHIFT_A=2, SHIFT_B=4)
    text += f"tfinish {name}\n" + store("output", 0, 48, 8) + "tend\n"
    found, _ = run(text, np.concatenate([sums, biases, rest]), precision=precision)
    total = acc + bias * biases[:, None]
    if residual:
        total = (total << 2) + (rest.reshape(2, 6).astype(np.int64) << 4)
    bits = 8 if precision == "int8" else 16
    expected = requantized(total, shift, low, high, bits)
    assert activations(found, 12).tolist() == expected.reshape(-1).tolist()


def test_finish_packs_narrow_elements() -> None:
    acc = np.arange(-3, 3, dtype=np.int32)
    text = load("output", 0, 24, 1) + sets(OPERANDS=ON_CHIP, OUT_OFFSET=1, OUT_CHANNELS=1)
    text += sets(OUT_ROWS=1, OUT_COLUMNS=6, LOW=-128, HIGH=127)
    text += "tfinish plain\n" + store("output", 0, 6, 1) + "tend\n"
    found, _ = run(text, acc, machine(words=BYTES))
    assert activations(found, 6, np.int8).tolist() == [-3, -2, -1, 0, 1, 2]


def test_finish_rounds_the_largest_sums() -> None:
    acc = np.array([2**63 - 1, -(2**63), 2**62, -1], np.int64)
    text = load("output", 0, 32) + sets(OPERANDS=ON_CHIP, OUT_CHANNELS=1, OUT_ROWS=1)
    text += sets(OUT_COLUMNS=4, SHIFT=62, LOW=-32768, HIGH=32767)
    text += "tfinish plain\n" + store("output", 0, 16) + "tend\n"
    found, _ = run(text, acc, precision="int16")
    assert activations(found, 4).tolist() == [2, -2, 1, 0]


def test_finish_adds_biases_to_the_largest_sums() -> None:
    """A sum that leaves 64 bits keeps its sign."""
    acc = np.array([2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1], np.int64)
    biases = np.array([1, 1, -1, -1], np.int32)
    for shift, most in ((62, 2), (0, 32767)):
        text = load("output", 0, 32) + load("bias", 32, 16) + sets(OPERANDS=ON_CHIP, SHIFT=shift)
        text += sets(OUT_CHANNELS=4, OUT_ROWS=1, OUT_COLUMNS=1, LOW=-32768, HIGH=32767)
        text += "tfinish bias\n" + store("output", 0, 8) + "tend\n"
        data = np.concatenate([acc.view(np.int32), biases])
        found, _ = run(text, data, machine(words=WORDS), precision="int16")
        least = -2 if most == 2 else -32768
        assert activations(found, 4, np.int16).tolist() == [most, most, least, least]


WORDS = {
    "int8_bytes": 1, "int16_bytes": 2, "int8_accumulator_bytes": 4, "int16_accumulator_bytes": 8
}  # fmt: skip


def pool_text(kind: str, out: tuple[int, int], **registers: int) -> str:
    text = load("input", 0, 2 * 20 * 4)
    values = {
        "OPERANDS": ON_CHIP, "IN_CHANNELS": 2, "IN_ROWS": 4, "IN_COLUMNS": 5, "OUT_CHANNELS": 2,
        "OUT_ROWS": out[0], "OUT_COLUMNS": out[1], "KERNEL_ROWS": 3, "KERNEL_COLUMNS": 3,
        "STRIDE_ROWS": 2, "STRIDE_COLUMNS": 2, "PAD_TOP": 1, "PAD_LEFT": 1, "LOW": -128,
        "HIGH": 127,
    }  # fmt: skip
    text += sets(**(values | registers)) + f"tpool {kind}\n"
    return text + store("output", 0, 2 * out[0] * out[1] * 4) + "tend\n"


PLANES = np.random.default_rng(4).integers(-128, 128, (2, 4, 5)).astype(np.int32)


def windows(out: tuple[int, int]) -> list[np.ndarray]:
    """What the 3 x 3 windows at stride 2 and padding 1 have inside, per channel and place."""
    found = []
    for plane in PLANES:
        for p in range(out[0]):
            for q in range(out[1]):
                y, x = 2 * p - 1, 2 * q - 1
                found.append(plane[max(y, 0) : y + 3, max(x, 0) : x + 3])
    return found


def test_max_pool() -> None:
    found, _ = run(pool_text("max", (2, 3), HIGH=100), PLANES)
    expected = [min(int(window.max()), 100) for window in windows((2, 3))]
    assert activations(found, 12).tolist() == expected


@pytest.mark.parametrize("counted", ["inside", "padding"])
@pytest.mark.parametrize("origin", [0, 7])
def test_average_pool(counted: str, origin: int) -> None:
    """Divisors count what is inside, or one row and column of padding too; the tile lies at row
    and column ``origin`` of its tensor."""
    border = 1 if counted == "padding" else 0
    text = pool_text(
        "average", (2, 3), ORIGIN_ROW=origin, ORIGIN_COLUMN=origin,
        COUNT_ROW_BEGIN=origin - border, COUNT_ROW_END=origin + 4 + border,
        COUNT_COLUMN_BEGIN=origin - border, COUNT_COLUMN_END=origin + 5 + border,
    )  # fmt: skip
    found, _ = run(text, PLANES)
    expected = []
    for window in windows((2, 3)):
        n = 9 if border else window.size
        expected.append((2 * int(window.sum()) + n) // (2 * n))
    assert activations(found, 12).tolist() == expected


@pytest.mark.parametrize("precision", ["int8", "int16"])
@pytest.mark.parametrize(("op", "meaning"), [
    ("copy", lambda a, b: a << 3), ("add", lambda a, b: (a << 3) + (b << 1)),
    ("multiply", lambda a, b: a * b),
])  # fmt: skip
def test_vectors(precision: Any, op: str, meaning: Any) -> None:
    low, high = INT8 if precision == "int8" else INT16
    random = np.random.default_rng(3)
    a, b = random.integers(low, high, (2, 12), endpoint=True).astype(np.int32)
    a[:2], b[:2] = low, (low, high)
    text = load("input", 0, 48, 5) + load("weight", 48, 48, 2)
    text += sets(OPERANDS=ON_CHIP, IN_OFFSET=5, W_OFFSET=2, OUT_OFFSET=9, OUT_CHANNELS=3)
    text += sets(OUT_ROWS=2, OUT_COLUMNS=2, SHIFT=2, LOW=low + 3, HIGH=high, SHIFT_A=3, SHIFT_B=1)
    text += f"tvec {op}\n" + store("output", 0, 48, 9) + "tend\n"
    found, _ = run(text, np.concatenate([a, b]), precision=precision)
    bits = 8 if precision == "int8" else 16
    expected = requantized(meaning(a.astype(np.int64), b.astype(np.int64)), 2, low + 3, high, bits)
    assert activations(found, 12).tolist() == expected.tolist()


def test_operands_are_read_before_the_result_is_written() -> None:
    """A copy onto a part of itself, in one memory."""
    on = machine(memories={"shared_bytes": 1024})
    text = load("input", 0, 32) + sets(OPERANDS=0, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=7)
    text += sets(OUT_OFFSET=4, LOW=-128, HIGH=127) + "tvec copy\n" + store("output", 0, 32)
    found, _ = run(text + "tend\n", np.arange(1, 9, dtype=np.int32), on)
    assert activations(found, 8).tolist() == [1, 1, 2, 3, 4, 5, 6, 7]


def test_fill() -> None:
    text = sets(OPERANDS=ON_CHIP, OUT_CHANNELS=2, OUT_ROWS=1, OUT_COLUMNS=3, FILL=-9, OUT_OFFSET=4)
    found, _ = run(text + "tfill\n" + store("output", 0, 24, 4) + "tend\n")
    assert activations(found, 6).tolist() == [-9] * 6


def test_three_names_mean_a_shared_memory() -> None:
    on = machine(memories={"shared_bytes": 1024})
    text = load("weight", 0, 12, 40) + store("output", 0, 12, 40) + store("input", 12, 12, 40)
    found, _ = run(text + "tend\n", [1, 2, 3], on)
    assert activations(found, 6).tolist() == [1, 2, 3, 1, 2, 3]


def test_runs_do_not_depend_on_earlier_ones() -> None:
    """DRAM stays, the chip counts as unwritten, statistics start afresh; timing changes nothing."""
    text = load("input", 0, 8, base="activations") + store("input", 4, 8) + "tend\n"
    found = simulator(text)
    found.write(ACTIVATIONS, np.array([1, 2, 0], np.int32))
    first = found.run()
    assert activations(found, 3).tolist() == [1, 1, 2]
    assert found.run() == first
    assert activations(found, 3).tolist() == [1, 1, 1]
    silent = found.run(timing=False)
    assert (silent.cycles, silent.loaded_bytes) == (0.0, first.loaded_bytes)


def test_what_lies_outside_is_the_segments() -> None:
    found = simulator("tend\n")
    found.write(ACTIVATIONS + SEGMENT_BYTES - 4, np.array([7], np.int32))
    assert found.dram[-4:].view(np.int32)[0] == 7
    assert list(TileMemory)[4:] == [TileMemory.CONSTANTS, TileMemory.ACTIVATIONS]
