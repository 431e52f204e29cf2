"""Generated DMA programs: what they move is what NumPy slices, both ways; their size and shape."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.parts.pl330 import (
    Box,
    Tensor3d,
    Tile,
    TransferError,
    TransferLimits,
    address_jumps,
    build_transfer,
    build_transfers,
)
from tvm_npu.sim.parts.pl330 import ZYNQ_7020_DMAC, run_program
from tvm_npu.sim.parts.pl330.code import assemble, decode, disassemble

Bytes = npt.NDArray[np.uint8]

DDR = 0x0010_0000
ON_CHIP = 0x4000_0000


@st.composite
def tensors_and_boxes(draw: st.DrawFn, largest: int = 20_000) -> tuple[Tensor3d, Box]:
    element_bytes = draw(st.sampled_from([1, 2, 4]))
    long = draw(st.integers(0, 2))
    sizes = [draw(st.integers(1, 900 if axis == long else 12)) for axis in range(3)]
    counts, begins = [], []
    for size in sizes:
        count = draw(st.one_of(st.just(size), st.integers(1, size)))
        counts.append(count)
        begins.append(draw(st.integers(0, size - count)))
    offset = draw(st.integers(0, 9)) * element_bytes
    return Tensor3d(DDR + offset, *sizes, element_bytes), Box(*begins, *counts)


def whole(tensor: Tensor3d, seed: int = 1) -> tuple[Bytes, Bytes]:
    """DDR around a tensor of random bytes, and the tensor [C, H, W, element bytes] as a view."""
    begin = tensor.address - DDR
    ddr = np.random.default_rng(seed).integers(0, 256, begin + tensor.size_bytes + 16, np.uint8)
    shape = (tensor.channels, tensor.rows, tensor.columns, tensor.element_bytes)
    return ddr, ddr[begin : begin + tensor.size_bytes].reshape(shape)


def cut(values: Bytes, box: Box) -> Bytes:
    return values[
        box.channel : box.channel + box.channels,
        box.row : box.row + box.rows,
        box.column : box.column + box.columns,
    ]


@settings(max_examples=examples(150), deadline=None)
@given(tensors_and_boxes(), st.integers(0, 9))
def test_box_to_tile_and_back(case: tuple[Tensor3d, Box], unit: int) -> None:
    tensor, box = case
    offset = unit * tensor.element_bytes
    ddr, values = whole(tensor)
    wanted = cut(values, box).copy()
    on_chip = np.full(offset + wanted.size + 16, 0xA5, np.uint8)

    def run(program: bytes) -> None:
        cycles, done = run_program(
            program, ZYNQ_7020_DMAC, ddr, on_chip, ddr_base=DDR, on_chip_base=ON_CHIP
        )
        assert done.loaded_bytes == done.stored_bytes == wanted.size
        assert done.ddr_jumps == address_jumps(tensor, box)
        assert cycles > ZYNQ_7020_DMAC.start_cycles

    run(build_transfer(tensor, box, ON_CHIP + offset, event=0))
    np.testing.assert_array_equal(on_chip[offset : offset + wanted.size], wanted.ravel())
    assert (on_chip[:offset] == 0xA5).all() and (on_chip[offset + wanted.size :] == 0xA5).all()

    before = ddr.copy()
    on_chip[:] = ~on_chip
    run(build_transfer(tensor, box, ON_CHIP + offset, direction="store"))
    np.testing.assert_array_equal(cut(values, box), ~wanted)
    cut(values, box)[...] = wanted
    np.testing.assert_array_equal(ddr, before)


@settings(max_examples=examples(60), deadline=None)
@given(tensors_and_boxes())
def test_programs_are_text_and_back(case: tuple[Tensor3d, Box]) -> None:
    program = build_transfer(*case, ON_CHIP, event=5)
    assert assemble(disassemble(program)) == program


def shape_of(program: bytes) -> str:
    """Mnemonics of a program, short: "mmm 0( 1( l s ) + ) b e"."""
    words = {
        "dmamov": "m", "dmald": "l", "dmast": "s", "dmaaddh": "+", "dmawmb": "b", "dmasev": "v",
        "dmaend": "e", "dmalpend": ")",
    }  # fmt: skip
    return " ".join(
        f"{item.operands['lc']}({item.operands['count']}"
        if item.instruction.mnemonic == "dmalp"
        else words[item.instruction.mnemonic]
        for item in decode(program)
    )


TENSOR = Tensor3d(DDR, 8, 48, 64, 4)


@pytest.mark.parametrize(
    ("tensor", "box", "shape"),
    [
        # Everything is one run: bursts alone.
        (TENSOR, Box(0, 0, 0, 8, 48, 64), "m m m 0(3 1(256 l s ) ) b v e"),
        (TENSOR, Box(1, 0, 0, 3, 48, 64), "m m m 1(256 l s ) 1(32 l s ) b v e"),
        # Full rows: a run a channel, no unrolling.
        (TENSOR, Box(0, 8, 0, 8, 4, 64), "m m m 0(8 1(8 l s ) + ) b v e"),
        # Rows: two loops, unrolled over three channels.
        (
            TENSOR,
            Box(2, 8, 0, 3, 5, 60),
            "m m m" + " +".join([" 0(5 1(2 l s ) + )"] * 3) + " b v e",
        ),
        # 17 beats a row: a burst of 16, one of 1, and CCR there and back.
        (TENSOR, Box(0, 0, 0, 1, 2, 34), "m m m 0(2 l s m l s m + ) b v e"),
        # 24 beats a row: two bursts of 12.
        (TENSOR, Box(0, 0, 0, 1, 2, 48), "m m m 0(2 1(2 l s ) + ) b v e"),
        # Rows 80,000 bytes apart: two steps; 400,000 apart: a loop of steps.
        (Tensor3d(DDR, 1, 3, 20_000, 4), Box(0, 0, 0, 1, 3, 4), "m m m 0(3 l s + + ) b v e"),
        (Tensor3d(DDR, 1, 3, 100_000, 4), Box(0, 0, 0, 1, 3, 4), "m m m 0(3 l s 1(6 + ) + ) b v e"),
        # More than 256 rows: two loops.
        (
            Tensor3d(DDR, 1, 300, 16, 4),
            Box(0, 0, 0, 1, 300, 8),
            "m m m 0(256 l s + ) 0(44 l s + ) b v e",
        ),
        # Channels too far for one step get their address.
        (
            Tensor3d(DDR, 2, 3000, 16, 4),
            Box(0, 0, 0, 2, 2, 8),
            "m m m 0(2 l s + ) m 0(2 l s + ) b v e",
        ),
    ],
)  # fmt: skip
def test_shape_of_programs(tensor: Tensor3d, box: Box, shape: str) -> None:
    assert shape_of(build_transfer(tensor, box, ON_CHIP, event=0)) == shape


def test_instructions_executed() -> None:
    ddr, _ = whole(TENSOR)
    on_chip = np.zeros(1 << 16, np.uint8)
    box = Box(2, 8, 0, 3, 5, 60)
    _, done = run_program(
        build_transfer(TENSOR, box, ON_CHIP, event=0),
        ZYNQ_7020_DMAC,
        ddr,
        on_chip,
        on_chip_base=ON_CHIP,
    )
    a_row = 1 + 2 * 3 + 1 + 1  # dmalp, 2 x (dmald, dmast, dmalpend), dmaaddh, dmalpend
    assert done.instructions == 3 + 3 * (1 + 5 * a_row) + 2 + 3
    assert (done.loads, done.stores) == (30, 30)


@pytest.mark.parametrize(
    ("address", "column", "columns", "beat_bytes"),
    [(0, 0, 8, 8), (0, 1, 8, 4), (4, 0, 8, 4), (4, 1, 8, 8), (0, 0, 7, 4)],
)
def test_beats_are_as_wide_as_aligned(
    address: int, column: int, columns: int, beat_bytes: int
) -> None:
    tensor = Tensor3d(DDR + address, 1, 6, 12, 4)
    program = build_transfer(tensor, Box(0, 0, column, 1, 2, columns), ON_CHIP)
    control = decode(program)[2].operands["imm"]
    assert 1 << ((control >> 1) & 7) == beat_bytes


def test_several_tiles_and_one_event() -> None:
    tensor = Tensor3d(DDR, 4, 6, 8, 2)
    ddr, values = whole(tensor)
    on_chip = np.zeros(1 << 12, np.uint8)
    boxes = [Box(0, 1, 2, 2, 3, 4), Box(3, 0, 0, 1, 6, 8)]
    tiles = [Tile(tensor, box, ON_CHIP + 1024 * i) for i, box in enumerate(boxes)]
    program = build_transfers(tiles, event=7)
    assert Counter(item.instruction.mnemonic for item in decode(program))["dmasev"] == 1
    run_program(program, ZYNQ_7020_DMAC, ddr, on_chip, on_chip_base=ON_CHIP)
    for i, box in enumerate(boxes):
        wanted = cut(values, box).ravel()
        np.testing.assert_array_equal(on_chip[1024 * i :][: wanted.size], wanted)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (Box(0, 0, 0, 9, 1, 1), "box channels 0 to 9 leave the tensor's 0 to 8"),
        (Box(0, 47, 0, 1, 2, 1), "box rows 47 to 49 leave the tensor's 0 to 48"),
        (Box(0, 0, -1, 1, 1, 1), "box columns -1 to 0 leave"),
        (Box(0, 0, 0, 1, 0, 1), "box rows 0 to 0 leave"),
    ],
)
def test_boxes_outside(box: Box, message: str) -> None:
    with pytest.raises(TransferError, match=message):
        build_transfer(TENSOR, box, ON_CHIP)


def test_limits() -> None:
    with pytest.raises(TransferError, match=r"program of \d+ bytes; at most 64: use fewer chan"):
        build_transfer(TENSOR, Box(0, 0, 0, 8, 5, 6), ON_CHIP, limits=TransferLimits(8, 64))
    with pytest.raises(TransferError, match="field event: 32 is outside 0..31"):
        build_transfer(TENSOR, Box(0, 0, 0, 1, 1, 1), ON_CHIP, event=32)
    with pytest.raises(TransferError, match="address 0x100000000; at most 0xffffffff"):
        build_transfer(TENSOR, Box(0, 0, 0, 1, 1, 1), 1 << 32)
    far = Tensor3d((1 << 32) - 64, 8, 48, 64, 4)
    with pytest.raises(TransferError, match="address 0x"):
        build_transfer(far, Box(7, 0, 0, 1, 5, 5), ON_CHIP)
    with pytest.raises(TransferError, match="elements of 0 bytes"):
        build_transfer(Tensor3d(DDR, 1, 1, 1, 0), Box(0, 0, 0, 1, 1, 1), ON_CHIP)
