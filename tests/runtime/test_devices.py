"""Several images in a run, on clusters and on devices with memories of their own: hand-made
programs of a Snowflake machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.codegen.program.test_program import PROGRAM
from tests.sim.snowflake.programs import machine, sets, words
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.graph import Scale
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import (
    DEBUG,
    RELOCATION,
    CodeRange,
    LayerEntry,
    Segment,
    SegmentSize,
    TensorSlot,
)
from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import EventLog
from tvm_npu.sim.statistics import add, beside

WORDS = 40
SHARE = 256


def _code(share: int) -> np.ndarray:
    """Adds the state to the input and doubles that; the state becomes 1, which the next image does
    not see. Input, output and state lie one behind the other."""
    text = sets(r1=4096 + SHARE * share, r2=0, r3=WORDS) + "ld mbuf, r1, r2, r3, 1, all, own, in\n"
    text += sets(r1=8192 + SHARE * share, r2=100) + "ld mbuf, r1, r2, r3, 1, all, own, in\n"
    text += "sync all, 0\n" + sets(r1=0, r4=100, out=200, shift=-1)
    text += f"mac add, result, r1, r4, {WORDS}\nsync all, 0\n"
    text += sets(r1=4096 + SHARE * share + 128, r2=200) + "tmov r1, r2, r3, 0, out\n"
    text += sets(out=300, low=1, high=1) + f"mac scale, result, r4, r4, {WORDS}\nsync all, 0\n"
    text += sets(r1=8192 + SHARE * share, r2=300) + "tmov r1, r2, r3, 0, out\nsync end, 0\n"
    return words(text)


def program(name: str, batch: int, **changes: Any) -> Program:
    """An image of the batch for each of the first clusters."""
    codes = [_code(share) for share in range(batch)]
    ends = np.cumsum([4 * len(code) for code in codes]).tolist()
    images = tuple(CodeRange(end - 4 * len(one), end) for end, one in zip(ends, codes, strict=True))
    slot = TensorSlot("in", (WORDS,), Scale.from_q_point(0), "int16", Segment.ACTIVATIONS, 0)
    size = SegmentSize(batch * SHARE, 4096)
    layer = LayerEntry(**{**PROGRAM.layers[0].__dict__, "name": "all", "code": images})
    return Program(
        name="doubler", machine=machine(name, **changes).model_dump(mode="json"),
        precision="int16", planner="none", inputs=(slot,),
        outputs=(replace(slot, name="out", offset=128),), intermediates=(),
        segments={
            Segment.CODE: SegmentSize(ends[-1], 4096), Segment.CONSTANTS: SegmentSize(0, 1),
            Segment.ACTIVATIONS: size, Segment.STATES: size,
        },
        parameter_offset=0, layers=(layer,), scopes=({},), code=np.concatenate(codes),
        constants=b"", relocations=np.zeros(0, RELOCATION),
        debug=np.zeros(ends[-1] // 4, DEBUG), images=images,
        states=(replace(slot, name="state", segment=Segment.STATES),), batch=batch,
    )  # fmt: skip


def _images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(-999, 999, (count, WORDS)).astype(np.int16)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 5, 6, 7])
def test_images_over_clusters_and_devices(batch: int, devices: int, count: int) -> None:
    name = f"snowflake-{batch}cc"
    found = Session(Program.from_bytes(program(name, batch, devices=devices).to_bytes()))
    images, log = _images(count), EventLog()
    for _ in range(2):  # states are cleared between runs
        (results,) = found.run_fixed([images], events=log)
        assert np.array_equal(results, 2 * images)
    assert np.array_equal(found.read_intermediate("out"), 2 * images[-1])
    statistics = found.statistics
    assert statistics is not None and statistics.runs == count
    alone = Session(program(name, batch))
    alone.run_fixed([images[:1]])
    one = alone.statistics
    assert one is not None
    rounds = -(-count // (batch * devices))
    used = -(-count // batch)  # runs of single devices
    assert statistics.cycles == pytest.approx(rounds * one.cycles)
    assert statistics.time_us == pytest.approx(rounds * one.time_us)
    assert statistics.layers[0].cycles == statistics.cycles
    assert statistics.moved_bytes == used * one.moved_bytes
    assert statistics.instructions == used * one.instructions
    assert len(log.runs) == 2 * used
    assert len(found._devices) == min(devices, used)


def test_memories_of_devices_are_their_own() -> None:
    found = Session(program("snowflake-1cc", 1, devices=2))
    found.run_fixed([_images(2)])
    first, second = (device.dram[4096 : 4096 + 2 * WORDS].copy() for device in found._devices)
    assert not np.array_equal(first, second)


def test_time_of_the_slowest() -> None:
    """Utilization counts all devices, also one without an image."""
    session = Session(program("snowflake-1cc", 1))
    session.run_fixed([_images(1)])
    one = session.statistics
    assert one is not None
    layers = tuple(replace(layer, cycles=2 * layer.cycles) for layer in one.layers)
    busy = replace(one, mac_utilization=0.8)
    slow = replace(busy, cycles=2 * one.cycles, time_us=2 * one.time_us, layers=layers)
    both = beside([busy, slow], 4)
    assert (both.cycles, both.time_us) == (slow.cycles, slow.time_us)
    assert both.layers[0].cycles == layers[0].cycles
    assert both.mac_utilization == pytest.approx(0.8 * 3 / 2 / 4)
    assert both.units == add(one, slow).units and both.instructions == 2 * one.instructions
    assert beside([one], 1) == one


def test_shares_have_to_be_equal() -> None:
    sound = program("snowflake-2cc", 2)
    assert Program.from_bytes(sound.to_bytes()).batch == 2
    assert b'"batch"' not in program("snowflake-1cc", 1).to_bytes()
    sizes = {**sound.segments, Segment.STATES: SegmentSize(2 * SHARE - 4, 4096)}
    with pytest.raises(ProgramError, match="size of segment states is 508"):
        replace(sound, segments=sizes).to_bytes()
    (slot,) = sound.inputs
    late = replace(slot, offset=SHARE - 2 * WORDS + 2)
    with pytest.raises(ProgramError, match=f"end of tensor 'in' is {SHARE + 2}"):
        replace(sound, inputs=(late,)).to_bytes()
