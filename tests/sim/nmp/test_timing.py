"""Cycle counts against formulas worked out by hand from the machine file's constants."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.sim.nmp.programs import (
    BASE,
    CONV,
    DATA,
    DRAM_BYTES,
    EXIT,
    cycles,
    dma,
    instructions,
    mac,
    run,
    segments,
    signal,
    simulator,
    small_machine,
    spin,
    transfer,
    wait,
)
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA

EXIT_CYCLES = 3
SEMAPHORE = 4.0


def transfer_cycles(machine: NmpMachine, bursts: int, size: int, box: bool = False) -> float:
    """One transfer without contention: setup + bursts * latency + bytes / rate."""
    dme = machine.dme
    latency = dme.burst_cycles if box else dme.linear_burst_cycles
    assert latency is not None
    return dme.setup_cycles + bursts * latency + size / dme.bytes_per_cycle


def test_scalar_instructions() -> None:
    assert cycles("nop\n" * 10 + EXIT) == 10 + EXIT_CYCLES
    assert cycles(spin(100) + EXIT) == 201 + EXIT_CYCLES
    slow = small_machine(cores={"instruction_cycles": 3})
    assert cycles("nop\n" * 10 + EXIT, slow) == 3 * (10 + EXIT_CYCLES)


def test_scalar_memory_costs_in_dram_only() -> None:
    text = "li t0, {}\nlw t1, 0(t0)\nsw t1, 4(t0)\n" + EXIT
    begin = instructions(text.format(DATA))
    assert cycles(text.format(DATA)) == begin + 2 * 20
    assert cycles(text.format(0x1000_0000)) == instructions(text.format(0x1000_0000))


def eq7_beats(in_channels: int, filters: int, positions: int, taps: int, lanes: int) -> int:
    """TSO, equation 7: T_n * T_m * ceil(T_r * T_c * K * K / lanes)."""
    return in_channels * filters * math.ceil(positions * taps / lanes)


@pytest.mark.parametrize("element_bytes", [1, 2])
@pytest.mark.parametrize(
    ("in_channels", "filters", "rows", "columns", "kernel"),
    [(4, 8, 4, 4, 3), (1, 1, 1, 1, 1), (3, 5, 3, 7, 3), (7, 2, 5, 5, 2)],
)
@pytest.mark.parametrize(("efficiency", "setup", "bits"), [(0.75, 8.0, 128), (1.0, 0.0, 64)])
def test_convolution(
    element_bytes: int, in_channels: int, filters: int, rows: int, columns: int, kernel: int,
    efficiency: float, setup: float, bits: int,
) -> None:  # fmt: skip
    machine = small_machine(
        mac={"efficiency": efficiency, "setup_cycles": setup, "datapath_bits": bits}
    )
    registers = {
        **CONV, "ELEMENT_BYTES": element_bytes, "IN_CHANNELS": in_channels,
        "OUT_CHANNELS": filters, "OUT_ROWS": rows, "OUT_COLUMNS": columns,
        "IN_ROWS": rows + kernel - 1, "IN_COLUMNS": columns + kernel - 1,
        "KERNEL_ROWS": kernel, "KERNEL_COLUMNS": kernel,
        "W_PITCH": in_channels * kernel * kernel,
    }  # fmt: skip
    text = mac(**registers) + "nmp_conv2d 1, zero\n"
    lanes = bits // (8 * element_bytes)
    beats = eq7_beats(in_channels, filters, rows * columns, kernel * kernel, lanes)
    operation = beats / efficiency + setup
    _, statistics = run(text + wait(1) + EXIT, machine)
    issued = instructions(text)
    # the wait itself takes a constant, two instructions and a semaphore operation
    done = max(issued + operation, issued + 2 + SEMAPHORE)
    assert statistics.cycles == pytest.approx(done + EXIT_CYCLES, rel=1e-12)
    assert statistics.macs == in_channels * filters * rows * columns * kernel * kernel


@pytest.mark.parametrize(
    ("operation", "changes", "beats"),
    [
        ("nmp_percept 1, zero", {"IN_CHANNELS": 20, "W_PITCH": 20, "OUT_CHANNELS": 9}, 9 * 3),
        ("nmp_pool 1, max", {"OUT_CHANNELS": 3}, 3 * math.ceil(16 * 9 / 8)),
        ("nmp_veop 1, copy", {"OUT_CHANNELS": 3, "SHIFT_A": 0, "SHIFT_B": 0}, 6),
        ("nmp_activation 1", {"OUT_CHANNELS": 3, "OUT_COLUMNS": 3, "SHIFT": 0}, 5),
    ],
)
def test_other_operations(operation: str, changes: dict[str, int], beats: int) -> None:
    text = mac(**{**CONV, **changes}) + f"{operation}\n"
    assert cycles(text + wait(1) + EXIT) == pytest.approx(
        instructions(text) + beats / 0.75 + 8 + EXIT_CYCLES
    )


def test_mac_unit_works_beside_the_core_and_in_order() -> None:
    operation = eq7_beats(4, 8, 16, 9, 8) / 0.75 + 8
    text = mac(**CONV) + "nmp_conv2d 1, zero\n"
    issued = instructions(text)
    assert operation > 401
    hidden = cycles(text + spin(200) + wait(1) + EXIT)  # 401 cycles beside the operation
    assert hidden == pytest.approx(issued + operation + EXIT_CYCLES)
    late = cycles(text + spin(2000) + wait(1) + EXIT)
    assert late == issued + 4001 + 2 + SEMAPHORE + EXIT_CYCLES
    two = cycles(text + "nmp_conv2d 1, keep\n" + wait(1, 2) + EXIT)  # issues when the first ends
    assert two == pytest.approx(issued + 2 * operation + EXIT_CYCLES, abs=1.01)
    unwaited = cycles(text + EXIT)  # a run ends when its operations have
    assert unwaited == pytest.approx(issued + EXIT_CYCLES + operation, abs=EXIT_CYCLES)
    assert unwaited >= issued + operation


@pytest.mark.parametrize(
    ("size", "count", "stride", "bursts"),
    [(64, 1, 0, 1), (128, 1, 0, 1), (129, 1, 0, 2), (1000, 1, 0, 8), (4000, 1, 0, 32),
     (100, 5, 100, 4), (100, 5, 300, 5), (130, 3, 256, 6)],
)  # fmt: skip
@pytest.mark.parametrize("mnemonic", ["nmp_load", "nmp_store"])
def test_one_transfer(mnemonic: str, size: int, count: int, stride: int, bursts: int) -> None:
    machine = small_machine(dme={"linear_burst_cycles": 20.0})
    memory = "mb0" if mnemonic == "nmp_load" else "mb2"
    text = segments(size, count, stride) + transfer(mnemonic, 1, memory, DATA)
    _, statistics = run(text + wait(1) + EXIT, machine)
    took = transfer_cycles(machine, bursts, size * count)
    assert statistics.cycles == pytest.approx(instructions(text) + took + EXIT_CYCLES)
    loaded, stored = statistics.loaded_bytes, statistics.stored_bytes
    moved = loaded if mnemonic == "nmp_load" else stored
    assert moved == {"other": size * count} and not (stored if moved is loaded else loaded)


def test_box_bursts() -> None:
    """A burst a row; full rows of a channel are contiguous; nothing for what lies outside."""
    shape = {"CHANNELS": 4, "ROWS": 10, "COLUMNS": 100, "CHANNEL_STRIDE": 2000,
             "ROW_STRIDE": 200, "FILL": 0, "ELEMENT_BYTES": 2}  # fmt: skip
    machine = small_machine()
    for start, box, bursts, size in (
        ((0, 0, 0), (1, 2, 50), 2, 200),
        ((0, 0, 0), (1, 2, 65), 4, 260),
        ((1, 2, 0), (2, 3, 100), 2 * 5, 1200),
        ((-1, -1, -1), (2, 3, 3), 2, 8),
        ((3, 8, -2), (2, 4, 104), 4, 400),
        ((4, 0, 0), (1, 2, 50), 0, 0),
    ):
        names = ("CHANNEL", "ROW", "COLUMN")
        registers = {f"START_{n}": v for n, v in zip(names, start, strict=True)}
        registers |= {f"BOX_{n}S": v for n, v in zip(names, box, strict=True)}
        text = dma(**shape, **registers) + transfer("nmp_load3d", 1, "mb0", DATA)
        _, statistics = run(text + wait(1) + EXIT, machine)
        # a box of full rows is one contiguous segment a channel, also when it is wider
        took = transfer_cycles(machine, bursts, size, box=True)
        assert statistics.cycles == pytest.approx(
            instructions(text) + max(took, 2 + SEMAPHORE) + EXIT_CYCLES
        ), (start, box)
        assert sum(statistics.loaded_bytes.values()) == size


def test_multicast_costs_one_transfer() -> None:
    machine = small_machine(1, 8)
    load = segments(512) + transfer("{}", 1, "mb0", DATA)
    first = "bnez a0, end\n" + load.format("nmp_mload") + "end: " + wait(1) + EXIT
    alone = instructions("nop\n" + load.format("nmp_load"))
    expected = alone + transfer_cycles(machine, 4, 512) + EXIT_CYCLES
    found, statistics = run(first, machine, data={DATA: np.arange(512, dtype=np.uint16)})
    assert statistics.cycles == pytest.approx(expected)
    assert statistics.loaded_bytes == {"other": 512}
    assert (found._state.mb0[:, :512] == found._state.mb0[0, :512]).all()
    assert found._state.mb0[7, :512].view(np.uint16).tolist() == list(range(256))
    each = load.format("nmp_load") + wait(1) + EXIT
    eight = instructions(load.format("nmp_load")) + 8 * transfer_cycles(machine, 4, 512)
    assert cycles(each, machine) == pytest.approx(eight + EXIT_CYCLES)


def test_four_engines_share_the_dram() -> None:
    """First come, first served burst by burst: a slow DRAM bounds all engines together."""
    text = segments(8192) + transfer("nmp_load", 1, "mb0", DATA) + wait(1) + EXIT
    for dram, shared in (({"cas_cycles": 14.0}, False), ({"cas_cycles": 100.0}, True)):
        dme = {"linear_burst_cycles": 40.0}
        machine = small_machine(4, 1, dram=dram, dme=dme)
        issue = instructions(segments(8192) + transfer("nmp_load", 1, "mb0", DATA))
        burst = dram["cas_cycles"] + 128 / 17.0
        engine = 40.0 + 128 / machine.dme.bytes_per_cycle
        one = cycles(text, small_machine(1, 1, dram=dram, dme=dme))
        assert one == pytest.approx(issue + 16 + 64 * max(burst, engine) + EXIT_CYCLES)
        four = cycles(text, machine)
        if shared:
            # 256 bursts, one after another
            least = issue + 16 + 256 * burst + EXIT_CYCLES
            assert least <= four <= least + engine
        else:
            # DRAM is idle 6/7 of the time: engines only wait for each other's first burst
            assert one + 3 * burst == pytest.approx(four)


def test_a_transfer_does_not_start_before_it_is_issued() -> None:
    """The engine was long idle when the second load comes, whatever the other actors do."""
    load = transfer("nmp_load", 2, "mb0", DATA)
    text = segments(128) + load + spin(2000) + load
    issue = instructions(segments(128) + load * 2) + 4001
    expected = issue + transfer_cycles(small_machine(), 1, 128) + EXIT_CYCLES
    assert cycles(text + wait(2, 2) + EXIT) == pytest.approx(expected)


def test_a_signal_is_seen_before_what_its_sender_does_later() -> None:
    """Core 0 signals, works on and takes what is left: core 1 was there before."""
    text = (
        "bnez a0, one\n"
        + spin(100)
        + signal(1, 1, "global")
        + spin(500)
        + wait(1, 1, "global")
        + "j end\none: "
        + wait(1, 1, "global")
        + spin(10)
        + signal(1, 1, "global")
        + "end: "
        + EXIT
    )
    _, statistics = run(text, small_machine(1, 2))
    # core 0 never blocks: branch, spin, signal, spin, wait, jump, exit
    assert statistics.cycles == 1 + 201 + 6 + 1001 + 6 + 1 + EXIT_CYCLES


def test_semaphores_cost() -> None:
    machine = small_machine(cores={"semaphore_cycles": 10.0})
    assert cycles(signal(1) + wait(1) + EXIT, machine) == 4 + 20 + EXIT_CYCLES
    text = "bnez a0, other\n" + spin(50) + signal(3, 1, "tle") + "j end\nother: "
    text += wait(3, 1, "tle") + "end: " + EXIT
    # core 1 goes on when core 0 has signalled: 1 + 101 + 2 + 10 cycles in; core 0 exits last
    found, statistics = run(text, small_machine(1, 2, cores={"semaphore_cycles": 10.0}))
    assert statistics.cycles == 1 + 101 + 2 + 10 + 1 + EXIT_CYCLES
    assert found._state.time[1] == 1 + 101 + 2 + 10 + EXIT_CYCLES


def test_release_reaches_the_whole_machine() -> None:
    text = "bnez a0, other\n" + spin(50) + "li t6, 1\nnmp_release global, 3, t6\nother: "
    found, _ = run(text + wait(3) + EXIT, small_machine(2, 3))
    released = 1 + 101 + 2 + SEMAPHORE
    assert found._state.time[1:6].tolist() == [released + EXIT_CYCLES] * 5
    assert not found._state.sem_tlt.any()
    trap_free = text.replace("global", "tle") + wait(3) + EXIT
    assert not run(trap_free, small_machine(1, 3))[0]._state.sem_tlt.any()


def test_full_queue_blocks_the_issuer() -> None:
    """Depth 2: the third load issues when the first is complete, the fourth after the second."""
    machine = small_machine(dme={"queue_depth": 2})
    load = transfer("nmp_load", 1, "mb0", DATA)
    one = transfer_cycles(machine, 1, 128)
    issue = instructions(segments(128) + load)
    for loads in (2, 3, 4):
        text = segments(128) + load * loads
        assert cycles(text + wait(1, loads) + EXIT, machine) == pytest.approx(
            issue + loads * one + EXIT_CYCLES
        )
    _, statistics = run(segments(128) + load * 4 + wait(1, 4) + EXIT, machine)
    assert statistics.instructions == instructions(segments(128) + load * 4) + 2 + EXIT_CYCLES
    # without waiting: the core itself is done when the third has issued, one cycle after the first
    found, statistics = run(segments(128) + load * 3 + EXIT, machine)
    assert found._state.time[0] == pytest.approx(issue + one + 1 + EXIT_CYCLES)
    assert statistics.cycles == pytest.approx(issue + 3 * one)  # the last transfer ends the run
    assert sum(statistics.loaded_bytes.values()) == 3 * 128


def test_instruction_cache_misses() -> None:
    """One miss a line, for all cores of a TLE together; loops hit; conflicts miss again."""
    costs = {"instruction_miss_cycles": 80.0}
    text = "nop\n" * 61 + EXIT  # 64 instructions: two lines of 128 bytes
    _, statistics = run(text, small_machine(1, 1, cores=costs))
    assert statistics.cycles == 64 + 2 * 80 and statistics.instruction_cache_misses == 2
    _, statistics = run(text, small_machine(2, 4, cores=costs))
    assert statistics.instruction_cache_misses == 4
    _, statistics = run(spin(300) + EXIT, small_machine(1, 1, cores=costs))
    assert statistics.cycles == 601 + EXIT_CYCLES + 80
    tiny = costs | {"instruction_cache_bytes": 256, "instruction_line_bytes": 64}
    # five lines in a cache of four: line 4 replaces line 0
    loop = "li t0, 3\nagain: " + "nop\n" * 76 + "addi t0, t0, -1\nbnez t0, again\n" + EXIT
    _, statistics = run(loop, small_machine(1, 1, cores=tiny))
    assert instructions(loop) == 82  # lines 0 to 5; 0 and 1 conflict with 4 and 5
    lines = [0, 1, 2, 3, 4] * 3 + [5]
    cache: dict[int, int] = {}
    misses = 0
    for line in lines:
        misses += cache.get(line % 4) != line
        cache[line % 4] = line
    assert statistics.instruction_cache_misses == misses
    assert statistics.cycles == statistics.instructions + 80 * misses


PIPELINE = (
    segments(288, element_bytes=2)
    + transfer("nmp_load", 2, "mb0", DATA)
    + segments(576, element_bytes=2)
    + transfer("nmp_load", 2, "mb1", DATA + 512)
    + mac(**CONV, SHIFT=10, LOW=-32768, HIGH=32767)
    + wait(2, 2)
    + "nmp_conv2d 1, zero\n"
    + wait(1)
    + "nmp_activation 1\n"
    + wait(1)
    + segments(256, element_bytes=2)
    + "slli t0, a0, 8\n"
    + f"li t4, {DATA + 4096}\nadd t4, t4, t0\nli t5, 0\nnmp_store 3, mb2, t4, t5\n"
    + wait(3)
    + EXIT
)
VALUES = np.random.default_rng(1).integers(-3000, 3000, 1024).astype(np.int16)


def test_without_timing_the_same_values_and_no_cycles() -> None:
    machine = small_machine(2, 2)
    timed, statistics = run(PIPELINE, machine, data={DATA: VALUES})
    untimed, free = run(PIPELINE, machine, data={DATA: VALUES}, timing=False)
    assert np.array_equal(timed.dram, untimed.dram)
    assert statistics.cycles > 0 and free.cycles == 0 and free.time_us == 0
    for name in ("macs", "loaded_bytes", "stored_bytes", "instructions", "code_bytes"):
        assert getattr(statistics, name) == getattr(free, name), name


def test_runs_are_deterministic() -> None:
    machine = small_machine(2, 4, cores={"instruction_miss_cycles": 80.0})
    found = simulator(PIPELINE, machine, {DATA: VALUES})
    first = found.run(BASE)
    image = found.dram.copy()
    assert all(found.run(BASE) == first for _ in range(3))
    assert np.array_equal(found.dram, image)
    again = simulator(PIPELINE, machine, {DATA: VALUES})
    assert again.run(BASE) == first


@pytest.mark.parametrize("timing", [True, False])
def test_statistics_add_up_over_layers_and_the_rest(timing: bool) -> None:
    """Cores count per layer where they are, also when others are elsewhere or idle."""
    parts = [
        "li t1, 1\nbne a0, t1, skip\n",
        segments(288, element_bytes=2) + transfer("nmp_load", 2, "mb0", DATA) + wait(2),
        mac(**CONV) + "nmp_conv2d 1, zero\n" + wait(1),
        "skip: " + EXIT,
    ]
    layers = np.repeat([-1, 0, 1, -1], [instructions(p.replace("skip", "4")) if k == 0 else
                                        instructions(p) for k, p in enumerate(parts)])  # fmt: skip
    code = assemble("".join(parts), BASE, isa=NMP_ISA)
    assert len(layers) == len(code)
    found = NmpSimulator(
        small_machine(1, 3), code, BASE, DRAM_BYTES,
        layer_names=("load", "compute"), layer_of=layers.astype(np.int32),
        stream_of=np.ones(len(code), np.int8),
    )  # fmt: skip
    statistics, _ = found.run(BASE, timing=timing)
    load, compute = statistics.layers
    assert statistics.loaded_bytes == load.loaded_bytes == {"in": 288} and not compute.loaded_bytes
    assert statistics.macs == compute.macs == 4 * 8 * 16 * 9 and load.macs == 0
    assert compute.busy_cycles("mac")[0] == compute.busy_cycles("mac")[2] == 0
    assert load.instructions == instructions(parts[1])
    rest = 3 * instructions("li t1, 1\nbne a0, t1, 4\n") + 3 * EXIT_CYCLES
    assert statistics.instructions == load.instructions + compute.instructions + rest
    assert load.bursts == 3 and compute.bursts == 0
    if timing:
        took = transfer_cycles(small_machine(), 3, 288)
        assert load.wait_cycles("control") == pytest.approx((0, took - 2 - SEMAPHORE, 0))
        assert load.busy_cycles("dma") == pytest.approx((took,))
        assert compute.busy_cycles("mac")[1] == pytest.approx(4 * 8 * 18 / 0.75 + 8)
        assert compute.wait_cycles("control") == (0, 0, 0)
        assert load.cycles + compute.cycles + EXIT_CYCLES == pytest.approx(statistics.cycles)


def test_work_outside_layers_counts_in_the_totals() -> None:
    _, statistics = run(PIPELINE, data={DATA: VALUES})
    assert statistics.layers == () and statistics.macs == 4 * 8 * 16 * 9
    assert statistics.loaded_bytes == {"other": 864} and statistics.stored_bytes == {"other": 256}


@pytest.mark.parametrize(
    ("part", "key", "values"),
    [
        ("dme", "bytes_per_cycle", (0.5, 1.5, 3.0, 20.0)),
        ("dme", "linear_burst_cycles", (200.0, 56.0, 10.0, 0.0)),
        ("dram", "bytes_per_cycle", (0.5, 2.0, 17.0)),
        ("dram", "cas_cycles", (300.0, 14.0, 0.0)),
        ("mac", "efficiency", (0.1, 0.75, 1.0)),
        ("mac", "setup_cycles", (500.0, 8.0, 0.0)),
    ],
)
def test_better_constants_are_never_slower(part: str, key: str, values: tuple[float, ...]) -> None:
    measured = [
        cycles(PIPELINE, small_machine(2, 2, **{part: {key: value}}), data={DATA: VALUES})
        for value in values
    ]
    assert measured == sorted(measured, reverse=True) and measured[0] > measured[-1]
