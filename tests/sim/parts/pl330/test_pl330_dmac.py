"""The controller: values, cycles worked out by hand, events, contention, traps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.sim.parts.pl330 import Dmac, DmacError, DmacTiming, DmacTrapCode, run_program
from tvm_npu.sim.parts.pl330.code import assemble
from tvm_npu.sim.parts.pl330.isa import ChannelControl
from tvm_npu.sim.traps import Trap

DDR, ON_CHIP = 0x1000, 0x8000
Bytes = npt.NDArray[np.uint8]

TIMING = DmacTiming(
    start_cycles=100,
    instruction_cycles=1,
    line_bytes=64,
    cache_lines=8,
    line_cycles=10,
    burst_cycles=2,
    jump_cycles=12,
    ddr_latency_cycles=24,
    ddr_bytes_per_cycle=8,
    on_chip_bytes_per_cycle=4,
    fifo_bytes=256,
    store_queue=2,
    program_bytes=256,
)


def memories() -> tuple[Bytes, Bytes]:
    values = np.random.default_rng(3).integers(1, 256, 4096, np.uint8)
    return values[:2048].copy(), values[2048:].copy()


def controller(timing: DmacTiming = TIMING, **options: object) -> tuple[Dmac, Bytes, Bytes]:
    ddr, on_chip = memories()
    dmac = Dmac(timing, ddr, on_chip, ddr_base=DDR, on_chip_base=ON_CHIP, **options)  # type: ignore[arg-type]
    return dmac, ddr, on_chip


def copy_program(
    source: int, target: int, bursts: int, event: int, beats: int = 16, barrier: str = "dmawmb"
) -> bytes:
    return assemble(f"""
        dmamov sar, {source}
        dmamov dar, {target}
        dmamov ccr, {ChannelControl(8, beats).encode()}
        dmalp lc0, {bursts}
        dmald
        dmast
        dmalpend lc0
        {barrier}
        dmasev {event}
        dmaend
    """)


def test_cycles_of_one_burst() -> None:
    dmac, ddr, on_chip = controller()
    dmac.start(0, copy_program(DDR + 8, ON_CHIP + 16, 1, 0), now_cycles=50.0)
    # Start 100, line 10, four instructions; DDR: burst 2 + jump 12 + 16, latency 24; on chip
    # 2 + 32; then the barrier goes on and the event follows, an instruction each.
    load = 50 + 100 + 10 + 4
    stored = load + (2 + 12 + 16) + 24 + (2 + 32)
    assert dmac.wait(0, now_cycles=60.0) == stored + 2
    np.testing.assert_array_equal(on_chip[16:144], ddr[8:136])
    assert dmac.run() == stored + 3
    done = dmac.statistics(0)
    assert (done.instructions, done.loads, done.stores, done.line_misses) == (10, 1, 1, 1)
    assert (done.loaded_bytes, done.stored_bytes, done.ddr_jumps) == (128, 128, 1)


def test_bursts_overlap_and_sequential_ones_do_not_jump() -> None:
    dmac, ddr, on_chip = controller()
    dmac.start(0, copy_program(DDR, ON_CHIP, 4, 0), 0.0)
    # The on-chip memory takes 34 cycles a burst, DDR 18, and two bursts fit the FIFO.
    first = 100 + 10 + 4 + (2 + 12 + 16) + 24
    assert dmac.wait(0, 0.0) == pytest.approx(first + 4 * 34 + 1 + 2 * 10, abs=12)
    assert dmac.statistics(0).ddr_jumps == 1
    np.testing.assert_array_equal(on_chip[:512], ddr[:512])


def test_store_direction_jumps_in_ddr() -> None:
    dmac, ddr, on_chip = controller()
    program = copy_program(ON_CHIP, DDR + 64, 2, 3)
    dmac.start(1, program, 0.0)
    dmac.wait(3, 0.0)
    np.testing.assert_array_equal(ddr[64:320], on_chip[:256])
    assert dmac.statistics(1).ddr_jumps == 1


def test_event_without_barrier_comes_before_the_bytes() -> None:
    """A program that forgets dmawmb shows: the event is early and the bytes are not there yet."""
    dmac, ddr, on_chip = controller()
    before = on_chip.copy()
    dmac.start(0, copy_program(DDR, ON_CHIP, 1, 0, barrier="dmanop"), 0.0)
    early = dmac.wait(0, 0.0)
    np.testing.assert_array_equal(on_chip, before)
    late = dmac.run()
    np.testing.assert_array_equal(on_chip[:128], ddr[:128])
    assert late > early + 50


def test_read_barrier_waits_for_loads_only() -> None:
    dmac, _, _ = controller()
    program = assemble(f"""
        dmamov sar, {DDR}
        dmamov ccr, {ChannelControl(8, 1).encode()}
        dmald
        dmarmb
        dmasev 0
        dmaend
    """)
    dmac.start(0, program, 0.0)
    assert dmac.wait(0, 0.0) == 100 + 10 + 2 + (2 + 12 + 1) + 24 + 1


def test_fixed_addresses() -> None:
    """A source that does not move fills; a destination that does not keeps the last beat."""
    dmac, ddr, on_chip = controller()
    before = on_chip.copy()
    fill = ChannelControl(4, 4, source_increments=False).encode()
    drain = ChannelControl(4, 4, destination_increments=False).encode()
    dmac.start(0, assemble(f"""
        dmamov sar, {DDR + 4}
        dmamov dar, {ON_CHIP}
        dmamov ccr, {fill}
        dmald
        dmast
        dmamov ccr, {drain}
        dmamov dar, {ON_CHIP + 32}
        dmald
        dmast
        dmaend
    """), 0.0)  # fmt: skip
    dmac.run()
    np.testing.assert_array_equal(on_chip[:16], np.tile(ddr[4:8], 4))
    np.testing.assert_array_equal(on_chip[32:36], ddr[16:20])
    np.testing.assert_array_equal(on_chip[36:], before[36:])


def test_addresses_go_back() -> None:
    dmac, ddr, on_chip = controller()
    dmac.start(0, assemble(f"""
        dmamov sar, {DDR + 128}
        dmamov dar, {ON_CHIP}
        dmamov ccr, {ChannelControl(8, 2).encode()}
        dmalp lc1, 3
          dmald
          dmast
          dmaadnh sar, {0x10000 - 32}
        dmalpend lc1
        dmaend
    """), 0.0)  # fmt: skip
    dmac.run()
    wanted = np.concatenate([ddr[begin : begin + 16] for begin in (128, 112, 96)])
    np.testing.assert_array_equal(on_chip[:48], wanted)
    assert dmac.statistics(0).ddr_jumps == 3


def test_channels_share_memories_and_bytes_are_right() -> None:
    alone = controller()[0]
    alone.start(0, copy_program(DDR, ON_CHIP, 4, 0), 0.0)
    one = alone.run()
    dmac, ddr, on_chip = controller()
    for channel in range(4):
        offset = 512 * channel
        program = copy_program(DDR + offset, ON_CHIP + offset, 4, channel)
        dmac.start(channel, program, 0.0)
    dmac.run()
    times = [dmac.end_cycles(channel) for channel in range(4)]
    np.testing.assert_array_equal(on_chip, ddr)
    # Sixteen bursts of 34 cycles on chip cannot take less, and nobody starves.
    assert one < min(times) and max(times) >= 100 + 16 * 34
    assert max(times) - min(times) < 4 * 34
    assert sum(dmac.statistics(channel).stores for channel in range(4)) == 16


def test_channels_wait_for_each_other() -> None:
    """Channel 1 brings on what channel 0 has brought: an event between channels."""
    dmac, ddr, on_chip = controller(channel_events=(5,))
    second = copy_program(ON_CHIP, DDR + 1024, 1, 0)
    dmac.start(1, assemble("dmawfe 5, 1") + second, 0.0)
    dmac.start(0, copy_program(DDR, ON_CHIP, 1, 5), 0.0)
    wanted = ddr[:128].copy()
    dmac.wait(0, 0.0)
    np.testing.assert_array_equal(ddr[1024:1152], wanted)
    dmac.run()
    # And pending ones: sent by the processor before the channel asks.
    dmac.signal(5, dmac.time_cycles)
    dmac.start(1, assemble("dmawfe 5, 0\ndmasev 2\ndmaend"), dmac.time_cycles)
    dmac.wait(2, dmac.time_cycles)


def test_wait_after_the_event_returns_at_once() -> None:
    dmac, _, _ = controller()
    dmac.start(0, copy_program(DDR, ON_CHIP, 1, 0), 0.0)
    assert dmac.wait(0, 5000.0) == 5000.0
    assert dmac.is_stopped(0) and dmac.end_cycles(0) < 400
    with pytest.raises(Trap, match="deadlock: the processor waits for event 0, which nobody"):
        dmac.wait(0, 5000.0)


def test_a_channel_stops_behind_its_event() -> None:
    dmac, _, _ = controller()
    program = copy_program(DDR, ON_CHIP, 1, 0)
    dmac.start(0, program, 0.0)
    now = dmac.wait(0, 0.0)
    with pytest.raises(DmacError, match="channel 0 still runs"):
        dmac.start(0, program, now)
    stopped = dmac.wait_stopped(0, now)
    assert stopped == now + 1 == dmac.wait_stopped(0, stopped)
    dmac.start(0, program, stopped)
    dmac.start(1, assemble("dmawfe 3, 0\ndmaend"), stopped)
    with pytest.raises(Trap, match="deadlock: channel 1 waits for event 3, which nobody"):
        dmac.wait_stopped(1, stopped)
    with pytest.raises(DmacError, match="channel -1; the controller has 0 to 7"):
        dmac.wait_stopped(-1, stopped)


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[float, int, int, int]]:
    """(pause in cycles, bursts, offset, beats) of transfers that a processor starts."""
    count = draw(st.integers(1, 6))
    return [
        (
            draw(st.sampled_from([0.0, 3.0, 40.0, 500.0])),
            draw(st.integers(1, 3)),
            128 * draw(st.integers(0, 11)),
            draw(st.sampled_from([1, 7, 16])),
        )
        for _ in range(count)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(scripts(), st.lists(st.floats(0, 300), max_size=12))
def test_steps_do_not_change_a_run(
    script: list[tuple[float, int, int, int]], steps: list[float]
) -> None:
    """Whatever else asks for the time in between, cycles and bytes stay the same."""

    def play(extra: list[float]) -> tuple[list[float], bytes, bytes]:
        dmac, ddr, on_chip = controller()
        now, times, more = 0.0, [], iter(extra)
        for number, (pause, bursts, offset, beats) in enumerate(script):
            target = now + pause
            for step in more:
                if dmac.time_cycles + step >= target:
                    break
                dmac.advance(dmac.time_cycles + step)
            now = target
            channel = number % 2
            if number >= 2:
                now = dmac.wait(channel, now)
                times.append(now)
                now = dmac.wait_stopped(channel, now)
            program = copy_program(DDR + offset, ON_CHIP + offset, bursts, channel, beats)
            dmac.start(channel, program, now)
        times.append(dmac.run())
        return times, ddr.tobytes(), on_chip.tobytes()

    assert play([]) == play(steps)


TRAPS = [
    ("dmago 1, 0, 0", DmacTrapCode.UNDEFINED_INSTRUCTION, "byte 0xa0 begins no instruction"),
    (".byte 0x35", DmacTrapCode.UNDEFINED_INSTRUCTION, "byte 0x35 begins no instruction"),
    (".byte 0xbc\n.byte 3\n.byte 0\n.byte 0\n.byte 0\n.byte 0",
     DmacTrapCode.UNDEFINED_INSTRUCTION, "byte 0xbc"),
    ("dmanop", DmacTrapCode.OUTSIDE_PROGRAM, "the program has 1 bytes and no DMAEND"),
    (".byte 0x54\n.byte 0", DmacTrapCode.OUTSIDE_PROGRAM, "the program has 2 bytes"),
    ("dmamov ccr, 0x14005\ndmamov sar, 0xffc\ndmald", DmacTrapCode.OUTSIDE_MEMORY,
     r"byte 12 \(dmald\): burst of 4 bytes at 0xffc lies in neither memory"),
    ("dmamov ccr, 0x3dc0f7\ndmamov sar, 0x17f8\ndmald", DmacTrapCode.OUTSIDE_MEMORY,
     "burst of 128 bytes at 0x17f8"),
    ("dmamov ccr, 0x14005\ndmamov sar, 0x1002\ndmald", DmacTrapCode.UNALIGNED_BURST,
     "burst at 0x1002 is not aligned to its beats of 4 bytes"),
    ("dmamov ccr, 0x9", DmacTrapCode.BAD_CONTROL, "CCR 0x00000009: beats are at most the bus's 8"),
    ("dmamov ccr, 0x10000000", DmacTrapCode.BAD_CONTROL, "without an endian swap"),
    ("dmalp lc0, 2\ndmalp lc0, 2", DmacTrapCode.LOOP_NESTING, "loop counter 0: loops nest"),
    ("dmalpend lc1, 0", DmacTrapCode.LOOP_NESTING, "loop counter 1"),
    ("dmalp lc0, 2\ndmalp lc1, 2\ndmalpend lc0", DmacTrapCode.LOOP_NESTING, "loop counter 0"),
    ("dmalp lc0, 2\ndmanop\ndmalpend lc0, 0", DmacTrapCode.LOOP_NESTING, "loop counter 0"),
    ("dmasev 16", DmacTrapCode.EVENT_NUMBER, "event 16; the controller has events 0 to 15"),
    ("dmawfe 31, 0", DmacTrapCode.EVENT_NUMBER, "event 31"),
    ("dmamov ccr, 0x3dc0f7\ndmamov sar, 0x1000\ndmald\ndmald\ndmald",
     DmacTrapCode.FIFO_OVERFLOW, "burst of 128 bytes does not fit beside the 256 in the FIFO of"),
    ("dmamov ccr, 0x14005\ndmamov dar, 0x1000\ndmast", DmacTrapCode.FIFO_UNDERFLOW,
     r"channel 2 at byte 12 \(dmast\): store of 4 bytes; 0 are loaded"),
    ("dmawfe 4, 0\ndmaend", DmacTrapCode.DEADLOCK, "channel 2 waits for event 4, which nobody"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "message"), TRAPS)
def test_traps(text: str, code: DmacTrapCode, message: str) -> None:
    ddr, on_chip = memories()
    dmac = Dmac(TIMING, ddr[:0x800], on_chip, ddr_base=DDR, on_chip_base=ON_CHIP)
    dmac.start(2, assemble(text), 0.0)
    with pytest.raises(Trap, match=message) as trap:
        dmac.run()
    assert trap.value.code == code


def test_requests_that_cannot_be() -> None:
    dmac, ddr, on_chip = controller()
    program = copy_program(DDR, ON_CHIP, 1, 0)
    dmac.start(0, program, 10.0)
    with pytest.raises(DmacError, match="channel 0 still runs at 20 cycles"):
        dmac.start(0, program, 20.0)
    with pytest.raises(DmacError, match="request at 15 cycles; the controller is at 20 already"):
        dmac.start(1, program, 15.0)
    with pytest.raises(DmacError, match="channel 8; the controller has 0 to 7"):
        dmac.start(8, program, 30.0)
    with pytest.raises(DmacError, match="program of 300 bytes; allowed: 1 to 256"):
        dmac.start(1, bytes(300), 30.0)
    with pytest.raises(DmacError, match="event 16 does not go to the processor"):
        dmac.wait(16, 30.0)
    with pytest.raises(DmacError, match="event 1 does not go to channels"):
        dmac.signal(1, 30.0)
    with pytest.raises(DmacError, match=r"overlap"):
        Dmac(TIMING, ddr, on_chip, ddr_base=0, on_chip_base=2047)
    with pytest.raises(DmacError, match=r"ddr is int64 \(4,\); a contiguous flat uint8 array"):
        Dmac(TIMING, np.zeros(4, np.int64), on_chip)  # type: ignore[arg-type]


def test_run_program_alone() -> None:
    ddr, on_chip = memories()
    program = copy_program(DDR, ON_CHIP, 2, 0)
    cycles, done = run_program(program, TIMING, ddr, on_chip, ddr_base=DDR, on_chip_base=ON_CHIP)
    dmac, _, _ = controller()
    dmac.start(3, program, 77.0)
    assert dmac.run() - 77.0 == cycles
    assert dmac.statistics(3) == done


def test_programs_thrash_a_small_cache() -> None:
    """A loop over two lines in a cache of one fetches both every round."""
    small = TIMING.model_copy(update={"line_bytes": 4, "cache_lines": 1})
    dmac, _, _ = controller(small)
    dmac.start(0, assemble("dmalp lc0, 5" + "\ndmanop" * 4 + "\ndmalpend lc0\ndmaend"), 0.0)
    dmac.run()
    # Bytes 0..3, 4..7 (dmalpend at 6), back to 2: two fetches a round, and dmaend's line.
    assert dmac.statistics(0).line_misses == 2 * 5 + 1


def test_channels_that_share_a_line_of_the_cache_both_go_on() -> None:
    """Each fetches its line where the other's was, and reads it all the same: neither may wait for
    ever for a line that the other has just thrown out."""
    small = TIMING.model_copy(update={"line_bytes": 4, "cache_lines": 1})
    dmac, ddr, on_chip = controller(small)
    for channel in range(3):
        dmac.start(channel, copy_program(DDR + 256 * channel, ON_CHIP + 256 * channel, 2, channel),
                   0.0)  # fmt: skip
    dmac.run()
    for channel in range(3):
        part = slice(256 * channel, 256 * (channel + 1))
        np.testing.assert_array_equal(on_chip[part], ddr[part])
        lines = dmac.statistics(channel).line_misses
        alone = run_program(
            copy_program(DDR, ON_CHIP, 2, 0), small, ddr, on_chip, ddr_base=DDR,
            on_chip_base=ON_CHIP,
        )[1].line_misses  # fmt: skip
        assert lines >= alone
