"""tgo and twait: what moves, what traps and with which words, and when everything runs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.sim.tiles.programs import CONSTANTS, activations, run, sets, simulator, words
from tvm_npu.sim.events import EventLog
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.parts.pl330.code import assemble
from tvm_npu.sim.parts.pl330.isa import ChannelControl
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Trap

TEMPLATES = 4096
"""Where templates begin in CONSTANTS; in front of them lies data."""
EACH = 256
SIZE = 64
START, LINE = 100, 40


def zynq(**changes: Any) -> TileMachine:
    """Small memories and round numbers of cycles."""
    values = load_machine("zynq-7020").model_dump(exclude_none=True)
    values["memories"] = {"shared_bytes": 1024, "bias_bytes": 128}
    values["words"] = {
        "int8_bytes": 4, "int16_bytes": 4, "int8_accumulator_bytes": 4,
        "int16_accumulator_bytes": 8,
    }  # fmt: skip
    values["core"] = {
        "mac_cycles": 2.0, "operation_cycles": 3.0, "setup_cycles": 10.0,
        "chip_access_cycles": 5.0, "dram_access_cycles": 7.0, "cache_bytes": 0, "line_bytes": 32,
        "hit_cycles": 1.0, "chip_miss_cycles": 20.0, "dram_miss_cycles": 50.0,
    } | changes.pop("core", {})  # fmt: skip
    values["dmac"] |= {
        "start_cycles": float(START), "instruction_cycles": 1.0, "line_cycles": float(LINE),
        "line_bytes": 64, "burst_cycles": 2.0, "jump_cycles": 12.0, "ddr_latency_cycles": 24.0,
        "ddr_bytes_per_cycle": 8.0, "on_chip_bytes_per_cycle": 4.0,
    } | changes.pop("dmac", {})  # fmt: skip
    machine = machine_from_dict(values | changes)
    assert isinstance(machine, TileMachine)
    return machine


def template(
    *, loads: bool = True, event: int = 0, tail: str = "dmawmb", bursts: int = 1, **words_: int
) -> bytes:
    """Moves ``bursts`` times 64 bytes; ``words_`` replace entries of the header."""
    outside, chip = ("sar", "dar") if loads else ("dar", "sar")
    program = assemble(
        f"dmamov {outside}, 0\ndmamov {chip}, 0\ndmamov ccr, {ChannelControl(4, 16).encode()}\n"
        + "dmald\ndmast\n" * bursts + f"{tail}\ndmasev {event}\ndmaend\n"
    )  # fmt: skip
    header = {"size": len(program), "chip": 8, "event": event, "count": 1, "place": 2, "plus": 0}
    header |= words_
    return np.array(list(header.values()), "<u4").tobytes() + program


def with_event(one: bytes, event: int) -> bytes:
    """A template whose header names another event than its program sends."""
    return one[:8] + event.to_bytes(4, "little") + one[12:]


LOADS = [template(event=event) for event in range(4)]
STORES = [template(loads=False, event=event) for event in range(4)]


def constants(*templates: bytes) -> np.ndarray:
    """Numbers from 0 on, then the templates, by default loads and stores by event."""
    data = np.arange(TEMPLATES // 4, dtype=np.int32).tobytes()
    for one in templates or (*LOADS, *STORES):
        data += one.ljust(EACH, b"\0")
    return np.frombuffer(data, np.uint8)


def go(
    number: int, address: int, at: int, *, memory: str = "input", base: str = "constants",
    channel: int | None = None, stores: bool = False, size: int = SIZE, extent: int = SIZE,
) -> str:  # fmt: skip
    """Starts template ``number``; its channel is the number's by default."""
    base = "activations" if stores and base == "constants" else base
    return sets(
        ADDRESS=address, CHIP_OFFSET=at, EXTENT_BYTES=extent, MOVED_BYTES=size,
        PROGRAM=TEMPLATES + EACH * number,
    ) + (
        f"tgo {memory}, {base}, in, {number % 4 if channel is None else channel}, "
        f"{'store' if stores else 'load'}\n"
    )  # fmt: skip


def store(number: int, address: int, at: int, **options: Any) -> str:
    return go(4 + number, address, at, stores=True, **options)


def trapped(text: str, *templates: bytes, on: TileMachine | None = None) -> Trap:
    with pytest.raises(Trap) as caught:
        run(text + "tend\n", constants(*templates), on or zynq())
    return caught.value


COPY = sets(OPERANDS=0, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=16, LOW=-128, HIGH=127)


def fill(at: int, columns: int = 16) -> str:
    return COPY + sets(OUT_OFFSET=at, OUT_COLUMNS=columns, FILL=5) + "tfill\n"


@pytest.mark.parametrize("timing", [True, False])
def test_bytes_go_where_the_registers_say(timing: bool) -> None:
    text = go(0, 128, 64) + go(1, 256, 512) + "twait 0\ntwait 1\n"
    text += COPY + sets(IN_OFFSET=64, OUT_OFFSET=256) + "tvec copy\n"
    text += store(2, 32, 256) + store(3, 128, 512, channel=0)
    found = simulator(text + "tend\n", zynq())
    found.write(0x8000_0000, constants())
    statistics = found.run(timing=timing)
    np.testing.assert_array_equal(activations(found, 16, at=32), np.arange(32, 48))
    np.testing.assert_array_equal(activations(found, 16, at=128), np.arange(64, 80))
    assert statistics.loaded_bytes == {"in": 2 * SIZE}
    assert statistics.stored_bytes == {"in": 2 * SIZE}
    assert (statistics.cycles > 0) == timing


def test_time_of_a_transfer_by_hand() -> None:
    text = go(0, 0, 0)
    issued = len(words(text))
    begin = issued + 2 * (3 + 7)  # two addresses: an operation and an access outside of the chip
    # Start, the program's line, three DMAMOVs; DDR: burst, jump, 64 / 8, latency; on chip: burst,
    # 64 / 4. Then the barrier and the event, and the end's instruction.
    stored = begin + START + LINE + 3 + (2 + 12 + 8 + 24) + (2 + 16)
    event = stored + 1 + 1
    assert run(text + "tend\n", constants(), zynq())[1].cycles == event + 1
    wait = "twait 0\n" + sets(FILL=1) + "tend\n"
    assert run(text + wait, constants(), zynq())[1].cycles == event + 2
    # With a cache the addresses are written there.
    cached = zynq(core={"cache_bytes": 1024})
    assert run(text + wait, constants(), cached)[1].cycles == event + 2 - 2 * 7 + 2 * 1


@pytest.mark.parametrize(
    ("cache", "filled", "convolved"),
    [
        # 5 elements: set-up, operations, two accesses each; with a cache their line.
        # 54 products, 27 sums: set-up, products, two operands each, two accesses to each sum;
        # with a cache the lines of 72, 24 and 108 bytes.
        (0, 10 + 5 * 3 + 10 * 5, 10 + 54 * 2 + 2 * 54 * 5 + 2 * 27 * 5),
        (1024, 10 + 5 * 3 + 10 + 20, 10 + 54 * 2 + 2 * 54 + 2 * 27 + (3 + 1 + 4) * 20),
        # 72 bytes of input do not stay in 64: they come once a filter.
        (64, 10 + 5 * 3 + 10 + 20, 10 + 54 * 2 + 2 * 54 + 2 * 27 + (3 * 3 + 1 + 4) * 20),
    ],
)  # fmt: skip
def test_time_of_commands_by_hand(cache: int, filled: float, convolved: float) -> None:
    on = zynq(core={"cache_bytes": cache})
    text = fill(0, 5)
    assert run(text + "tend\n", (), on)[1].cycles == len(words(text)) + filled + 1
    start = fill(0, 5) + sets(OUT_COLUMNS=32) + "tfill\n"
    text = sets(
        IN_CHANNELS=2, IN_ROWS=3, IN_COLUMNS=3, OUT_CHANNELS=3, OUT_ROWS=3, OUT_COLUMNS=3,
        W_OFFSET=72, OUT_OFFSET=256, KERNEL_ROWS=1, KERNEL_COLUMNS=1, STRIDE_ROWS=1,
        STRIDE_COLUMNS=1, DILATION_ROWS=1, DILATION_COLUMNS=1, GROUPS=1,
    ) + "tconv zero\n"  # fmt: skip
    before = run(start + "tend\n", (), on)[1].cycles
    after = run(start + text + "tend\n", (), on)[1].cycles
    assert after - before == len(words(text)) + convolved


def test_operands_outside_of_the_chip_cost_their_accesses() -> None:
    def of(cache: int, memory: TileMemory) -> float:
        text = COPY + sets(OPERANDS=memory << 6, OUT_COLUMNS=8) + "tfill\n"
        on = zynq(core={"cache_bytes": cache})
        return run(text + "tend\n", (), on)[1].cycles

    out, near = TileMemory.ACTIVATIONS, TileMemory.OUTPUT
    assert of(0, out) - of(0, near) == 2 * 8 * (7 - 5)
    assert of(1024, out) - of(1024, near) == 50 - 20


def test_transfers_run_beside_the_core() -> None:
    work = fill(512) * 8
    alone = run(work + "tend\n", constants(), zynq())[1].cycles
    moving = go(0, 0, 0) + "twait 0\n"
    transfer = run(moving + "tend\n", constants(), zynq())[1].cycles
    one_by_one = run(moving + work + "tend\n", constants(), zynq())[1]
    beside = run(go(0, 0, 0) + work + "twait 0\ntend\n", constants(), zynq())[1]
    assert one_by_one.cycles == alone + transfer - 1
    assert beside.cycles < alone + transfer / 4
    assert beside.loaded_bytes == one_by_one.loaded_bytes


def test_a_channel_can_be_started_again_after_its_event() -> None:
    """Its program has one more instruction behind the event; tgo waits for that."""
    text = go(0, 0, 0) + "twait 0\n" + go(0, 64, 64) + "twait 0\n" + COPY
    text += sets(IN_OFFSET=64, OUT_OFFSET=128) + "tvec copy\n" + store(1, 0, 128)
    found, _ = run(text + "tend\n", constants(), zynq())
    np.testing.assert_array_equal(activations(found, 16), np.arange(16, 32))


WAIT = "; wait for its event first"
BUSY = "are used while channel 0 of the DMA controller may be moving them" + WAIT


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (go(0, 0, 0, memory="4"), "WRONG_MEMORY", "CONSTANTS cannot be used here"),
        (go(0, 0, 0, memory="7"), "WRONG_MEMORY", "memory 7 cannot be used here"),
        (go(0, 0, 0, base="2"), "WRONG_MEMORY",
         "the shared memory (as OUTPUT) cannot be used here"),
        (fill(0) + go(4, 0, 0, stores=True).replace("activations", "constants"), "WRONG_MEMORY",
         "CONSTANTS cannot be used here"),
        (go(0, 0, 1000), "TILE_OUTSIDE",
         "CHIP_OFFSET puts the operand at bytes 1000..1064 of the shared memory (as INPUT), which "
         "has 1024"),
        (go(0, 0, 100, memory="bias"), "TILE_OUTSIDE", "bytes 100..164 of the bias memory"),
        (go(0, 0, -4), "TILE_OUTSIDE", "bytes -4..60"),
        (go(0, 0, 0, size=0), "TILE_OUTSIDE", "bytes 0..0"),
        (go(0, (1 << 20) - 60, 0), "TRANSFER_OUTSIDE",
         "the transfer touches bytes 1048516..1048580 of segment CONSTANTS, which has 1048576"),
        (go(0, -8, 0), "TRANSFER_OUTSIDE", "bytes -8..56"),
        (fill(0) + store(0, (1 << 20) - 4, 0), "TRANSFER_OUTSIDE", "of segment ACTIVATIONS"),
        (store(0, 0, 16), "NOT_WRITTEN",
         "byte 16 of the shared memory (as INPUT) is read, and nothing was written there"),
        (fill(0, 10) + store(0, 0, 0), "NOT_WRITTEN", "byte 40 of the shared memory"),
        (go(0, 0, 0) + fill(60, 1), "RACE", "bytes 60..64 of the shared memory (as INPUT) " + BUSY),
        (go(0, 0, 0) + COPY + sets(OUT_OFFSET=64) + "tvec copy\n", "RACE", "bytes 0..64 of"),
        (fill(0) + store(0, 0, 0) + fill(0, 1), "RACE", "bytes 0..4 of the shared memory"),
        (fill(0) + store(0, 64, 0) + COPY
         + sets(OPERANDS=TileMemory.ACTIVATIONS, IN_OFFSET=124, OUT_COLUMNS=1, OUT_OFFSET=512)
         + "tvec copy\n", "RACE", "bytes 124..128 of ACTIVATIONS " + BUSY),
        (go(0, 0, 0) + go(1, 64, 60), "RACE", "bytes 60..124 of the shared memory (as INPUT) "
         + BUSY),
        (go(0, 0, 0, memory="bias") + go(1, 64, 60, memory="bias"), "RACE",
         "bytes 60..124 of the bias memory " + BUSY),
        (go(0, 0, 0) + store(1, 0, 0), "RACE", "bytes 0..64 of the shared memory"),
        (fill(0) + store(0, 0, 0) + go(1, 0, 0), "RACE", "bytes 0..64 of the shared memory"),
        (fill(0) + store(0, 0, 0) + store(1, 60, 0), "RACE", "bytes 60..124 of ACTIVATIONS"),
        (fill(0) + store(0, 0, 0) + go(1, 8, 512, base="activations"), "RACE",
         "bytes 8..72 of ACTIVATIONS"),
        (go(0, 0, 0) + go(1, 64, 128, channel=0), "DMA",
         "channel 0 is started again before a wait for its event 0"),
        (go(0, 0, 0) + fill(512) * 40 + go(1, 64, 128, channel=0), "DMA", "is started again"),
        (go(0, 0, 0) + go(0, 64, 128, channel=1), "DMA",
         "channels 0 and 1 would both send event 0"),
        ("twait 3\n", "DMA", "the processor waits for event 3, which nobody sends"),
        (go(0, 0, 0) + "twait 0\ntwait 0\n", "DMA", "event 0, which nobody sends"),
        ("twait 31\n", "DMA", "event 31 does not go to the processor"),
        (go(0, 0, 0, size=32) + "twait 0\n", "DMA",
         "the program of channel 0 moved 64 bytes; its tgo said 32 (MOVED_BYTES)"),
        (go(0, 0, 0, size=128), "DMA", "moved 64 bytes; its tgo said 128"),
        (go(0, 2, 0), "DMA", "is not aligned to its beats of 4 bytes"),
        ("tgo input, constants, 7, 0, load\n", "ILLEGAL_INSTRUCTION", "illegal instruction"),
        ("tgo input, constants, in, 0, 2\n", "ILLEGAL_INSTRUCTION", "illegal instruction"),
        ("tload input, constants, in\n", "NO_UNIT", "machine zynq-7020 has no mover"),
    ],
)  # fmt: skip
def test_traps(text: str, code: str, message: str) -> None:
    trap = trapped(text)
    assert trap.code == TileTrapCode[code], str(trap)
    assert message in str(trap)
    if "tgo" in trap.place.instruction:
        assert "ADDRESS" in trap.place.registers and "PROGRAM" in trap.place.registers


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (template(count=70000), "70000 addresses; at most 65536"),
        (template(count=-1 & 0xFFFF_FFFF), "4294967295 addresses; at most 65536"),
        (template(count=65536), "an address goes to byte"),
        (template(size=1 << 21), f"{1 << 19} words at {TEMPLATES + 24} leave the segment"),
        (template(chip=1000), "an address goes to byte 1000, the program has 24 bytes"),
        (template(place=28), "an address goes to byte 28, the program has 24 bytes"),
        (with_event(template(), 16), "event 16; the controller has events 0 to 15"),
        (with_event(template(), (1 << 32) - 1), "event 4294967295; the controller has events 0"),
    ],
)  # fmt: skip
def test_bad_templates(bad: bytes, message: str) -> None:
    trap = trapped(go(0, 0, 0), bad)
    assert trap.code == TileTrapCode.BAD_TEMPLATE
    assert f"no DMA program at byte {TEMPLATES} of CONSTANTS" in str(trap) and message in str(trap)


def test_control_is_work_and_keeps_nothing() -> None:
    """Where nobody records what a run does, it needs no memory for each program."""
    text = 200 * (go(0, 0, 0) + "twait 0\n") + "tend\n"
    found = simulator(text, zynq(), most_work=(400 << 14) + 1_000_000)
    found.write(CONSTANTS, constants())
    found.run()
    tracemalloc.start()
    found.run()
    left = tracemalloc.get_traced_memory()[1]
    found.run(events=EventLog())
    recorded = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recorded > left + 200 * 200
    found = simulator(text, zynq(), most_work=399 << 14)
    found.write(CONSTANTS, constants())
    with pytest.raises(Trap) as caught:
        found.run()
    assert caught.value.beyond_work


def test_a_long_template_takes_no_memory() -> None:
    data = np.full(1 << 20, 0x35, np.uint8)
    data[:16] = np.array([(1 << 20) - 16, 0, 0, 0], "<u4").view(np.uint8)
    found = simulator(
        go(0, 0, 0).rsplit("tgo", 1)[0] + sets(PROGRAM=0) + "tgo input, constants, in, 0, load\n",
        zynq(dmac={"program_bytes": 4096}),
    )
    found.write(CONSTANTS, data)
    with pytest.raises(Trap, match="program of 1048560 bytes; allowed: 1 to 4096"):
        found.run()
    tracemalloc.start()
    with pytest.raises(Trap):
        found.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 21


def test_a_template_outside_of_its_segment() -> None:
    registers = go(0, 0, 0).rsplit("tgo", 1)[0]
    trap = trapped(registers + sets(PROGRAM=(1 << 20) - 8) + "tgo input, constants, in, 1, load\n")
    assert trap.code == TileTrapCode.BAD_TEMPLATE
    assert "4 words at 1048568 leave the segment of 1048576 bytes" in str(trap)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (template(event=3, tail="dmawmb" + 5 * "\ndmald"), "does not fit beside the 256 in"),
        (template(event=3, tail="dmawfe 9, 0"), "channel 0 waits for event 9, which nobody sends"),
        (template(event=2), "the processor waits for event 3, which nobody sends"),
        (with_event(template(event=16), 3), "event 16; the controller has events 0 to 15"),
    ],
)
def test_programs_that_go_wrong(bad: bytes, message: str) -> None:
    trap = trapped(go(0, 0, 0, extent=8 * SIZE) + "twait 3\n", bad)
    assert trap.code == TileTrapCode.DMA
    assert message in str(trap)


def burst(of: str, at: int) -> str:
    """An address of one register that is not put in, then a burst."""
    return f"dmamov {of}, {at}\ndmald\ndmast\n"


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (burst("dar", 512) + "dmawmb", "burst of 64 bytes at 0x200 is none of this transfer's"),
        (burst("dar", 0) + "dmawmb", "burst of 64 bytes at 0x0 is none of this transfer's"),
        (burst("sar", zynq().dram.base_address + 256), "at 0x80000100 is none of this transfer's"),
        (burst("sar", 256), "at 0x100 is none of this transfer's"),
        ("dmawmb\ndmasev 0\ndmald\ndmast", "at 0x80000040 is none of this transfer's"),
        ("dmanop", "event 0; this transfer sends event 0, once, behind DMAWMB"),
        ("dmawmb\ndmasev 1", "event 1; this transfer sends event 0, once"),
        ("dmawmb\ndmasev 0", "event 0; this transfer sends event 0, once"),
    ],
)
def test_programs_that_do_something_else(tail: str, message: str) -> None:
    """A command behind the wait would read bytes that nobody has waited for, or old ones."""
    trap = trapped(go(0, 0, 0, extent=256) + "twait 0\ntwait 0\n", template(tail=tail))
    assert trap.code == TileTrapCode.DMA
    assert message in str(trap)


def test_rounds_are_work() -> None:
    """A program of few bytes may run for minutes."""
    loops = "dmalp lc0, 256\ndmalp lc1, 256\ndmanop\ndmalpend lc1\ndmalpend lc0\n"
    found = simulator(go(0, 0, 0) + "tend\n", zynq(), most_work=1 << 20)
    found.write(0x8000_0000, constants(template(tail=4 * loops + "dmawmb")))
    with pytest.raises(Trap) as caught:
        found.run()
    assert caught.value.code == TileTrapCode.BUDGET
    assert "more than 1048576 products, elements and bytes" in str(caught.value)


def test_instructions_of_dma_programs_are_the_runs() -> None:
    """Just enough run, those of the core and those of the controller, one less traps."""
    text = go(0, 0, 0) + "twait 0\ntend\n"

    def runs(budget: int) -> bool:
        found = simulator(text, zynq(), budget=budget)
        found.write(0x8000_0000, constants(template()))
        try:
            return found.run().instructions == len(words(text))
        except Trap as trap:
            assert trap.code == TileTrapCode.RUNAWAY and f"more than {budget} instr" in str(trap)
            return False

    core, enough = len(words(text)), [runs(budget) for budget in range(80)]
    least = enough.index(True)
    assert core + 5 < least and all(enough[least:]) and not runs(0)


def test_addresses_of_templates_are_work() -> None:
    """The core writes each into the program, which moves few bytes."""
    most, many = 1 << 18, 8000
    one = template(count=many, place=2)
    pairs = np.tile(np.array([2, 0], "<u4"), many).tobytes()
    whole = one[:16] + pairs + one[24:]
    found = simulator(go(0, 0, 0) + "tend\n", zynq(), most_work=most)
    data = np.arange(TEMPLATES // 4, dtype=np.int32).tobytes() + whole
    found.write(0x8000_0000, np.frombuffer(data, np.uint8))
    with pytest.raises(Trap) as caught:
        found.run()
    assert caught.value.code == TileTrapCode.BUDGET


def test_a_program_that_ends_too_soon() -> None:
    trap = trapped(go(0, 0, 0) + "twait 0\ntwait 1\n", template(size=23))
    assert trap.code == TileTrapCode.DMA and "23" in str(trap)


def test_channels_that_there_are_not() -> None:
    trap = trapped(go(0, 0, 0, channel=3), on=zynq(dmac={"channels": 2}))
    assert "channel 3; the controller has 0 to 1" in str(trap)


def test_a_simulator_works_again_after_a_trap() -> None:
    found = simulator(go(0, 0, 0) + fill(512) + "tend\n", zynq())
    bad = simulator(go(0, 0, 0) + fill(0) + "tend\n", zynq())
    for one in (found, bad):
        one.write(0x8000_0000, constants())
    cycles = found.run().cycles
    with pytest.raises(Trap):
        bad.run()
    with pytest.raises(Trap):
        bad.run()
    assert found.run().cycles == cycles
