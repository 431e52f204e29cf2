"""Which unit made which part of a layer's output, against what its stores did to memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.small_runs import MACHINES, recorded
from tests.report.stores import seen, told
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.program.format import Segment, TensorSlot
from tvm_npu.report import shares as module
from tvm_npu.report.shares import layer_shares, region_shares
from tvm_npu.sim.events import EventColumn, Events, Names


@pytest.mark.parametrize("name", MACHINES)
def test_events_tell_the_bytes_that_stores_write(name: str) -> None:
    program = recorded(name).session.program
    random = np.random.default_rng(3)
    inputs = [
        random.integers(-99, 99, (1, *slot.shape)).astype(f"i{slot.element_bytes}")
        for slot in program.inputs
    ]
    found, events = told(program, inputs)
    really = seen(program, inputs)
    assert found.keys() == really.keys()
    for row, written in found.items():
        assert really[row] <= written
        # What was there may be what comes there.
        others = set().union(*(found[other] for other in found if other < row))
        assert written - really[row] <= others, row
    stores = events.table[events.table[:, EventColumn.RUN_BYTES] > 0]
    makers = {events.names.makers[maker] for maker in stores[:, EventColumn.MAKER].tolist()}
    assert len(makers) == {"nmp": 4, "snowflake-1cc": 4}.get(name, 1), makers


@pytest.mark.parametrize("name", MACHINES)
def test_the_pieces_are_the_whole_output(name: str) -> None:
    run = recorded(name)
    assert run.events is not None
    pictures = 0
    for shares in region_shares(run):
        for share in shares:
            pictures += 1
            assert share.exact and (share.tile >= 0).all()
            assert share.tile.shape == tuple(map(len, share.cuts))
            assert abs(share.part.sum() - 1) < 1e-9
            assert all(cuts[0] == 0 and cuts[-1] < extent
                       for cuts, extent in zip(share.cuts, share.shape, strict=True))  # fmt: skip
    assert pictures == len(run.session.program.layers)


def _events(boxes: list[tuple[int, ...]]) -> Events:
    """Stores of makers 0, 1, 0, 1 ..."""
    table = np.zeros((len(boxes), EventColumn.OWN), np.int64)
    table[:, EventColumn.BEGIN :] = boxes
    table[:, EventColumn.MAKER] = np.arange(len(boxes)) % 2
    names = Names(("u",), (), ("l",), ("",), lambda row: {}, lambda row: (), makers=("a", "b"))
    times = np.stack([np.arange(len(boxes)), np.arange(len(boxes)) + 1.0], axis=-1)
    return Events(names, table, times)


def _slot(shape: tuple[int, ...], planes: int = 0, pitch: int = 0) -> TensorSlot:
    return TensorSlot(
        "t", shape, Scale.from_q_point(0), "int16", Segment.ACTIVATIONS, 100, 2, planes, pitch
    )


def _brute(slot: TensorSlot, boxes: list[tuple[int, ...]], begin: int) -> np.ndarray:
    """The tile of every element, one by one."""
    memory = np.full(slot.size_bytes // 2, -1)
    for tile, (at, size, runs, step, groups, group_step) in enumerate(boxes):
        for group in range(groups):
            for run in range(runs):
                first = (at - begin - slot.offset + run * step + group * group_step) // 2
                memory[first : first + size // 2] = tile
    if not slot.planes:
        return memory.reshape(slot.shape)
    pixels = np.arange(slot.shape[1] * slot.shape[2])
    places = pixels * slot.pitch + np.arange(slot.planes)[:, None]
    return memory[places].reshape(slot.shape)


@pytest.mark.parametrize("seed", range(12))
def test_random_boxes_are_cut_as_one_by_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(int(one) for one in random.integers(1, 9, 3))
    inside = bool(seed % 2)
    pitch = shape[0] + int(random.integers(0, 4))
    slot = _slot(shape, shape[0], pitch) if inside else _slot(shape)
    extents = (shape[1], shape[2], shape[0]) if inside else shape
    steps = (shape[2] * pitch, pitch, 1) if inside else (shape[1] * shape[2], shape[2], 1)
    boxes: list[tuple[int, ...]] = []
    for _ in range(int(random.integers(1, 7))):
        low = [int(random.integers(0, extent)) for extent in extents]
        size = [int(random.integers(1, extent - at + 1))
                for extent, at in zip(extents, low, strict=True)]  # fmt: skip
        first = 60 + 100 + 2 * sum(at * step for at, step in zip(low, steps, strict=True))
        boxes.append((first, 2 * size[2], size[1], 2 * steps[1], size[0], 2 * steps[0]))
    (share,) = layer_shares(_events(boxes), np.arange(len(boxes)), [slot], 60)
    drawn = np.full(shape, -2)
    ends = [(*cuts[1:], extent) for cuts, extent in zip(share.cuts, shape, strict=True)]
    for at in np.ndindex(share.tile.shape):
        where = tuple(slice(share.cuts[k][n], ends[k][n]) for k, n in enumerate(at))
        drawn[where] = share.tile[at]
    assert np.array_equal(drawn, _brute(slot, boxes, 60))
    sizes = [(drawn == tile).mean() for tile in range(len(boxes))]
    assert np.allclose(share.part, sizes)


def test_pictures_of_many_tiles_are_coarser_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [(160 + 2 * k, 2, 1, 0, 1, 0) for k in range(64)]
    monkeypatch.setattr(module, "MOST_CELLS", 40)
    monkeypatch.setattr(module, "MOST_SAMPLES", 6)
    (share,) = layer_shares(_events(boxes), np.arange(64), [_slot((64,))], 60)
    assert not share.exact and share.tile.shape == (6, 1, 1) and share.tiles == 64
    assert np.allclose(share.part, 1 / 64)


def test_stores_outside_of_the_output_show_nothing() -> None:
    boxes = [(0, 8, 1, 0, 1, 0), (150, 40, 1, 0, 1, 0)]
    assert layer_shares(_events(boxes), np.arange(2), [_slot((8,))], 60) == []
