"""How long instructions take, each mechanism alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    END,
    NOP,
    SYNC,
    load,
    machine,
    packed,
    results,
    sets,
    simulator,
    store,
)
from tvm_npu.sim.events import EventLog
from tvm_npu.sim.snowflake.isa import BANK_INSTRUCTIONS
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator


def cycles(text: str, **changes: Any) -> float:
    """Cycles of ``text`` on one CU, the core's included: `sync end` issues behind it."""
    found = simulator(text + END, machine("snowflake-1cu", **changes))
    return found.run().cycles


def extra(text: str, base: str, **changes: Any) -> float:
    return cycles(text, **changes) - cycles(base, **changes)


@pytest.mark.parametrize(("between", "stall"), [(0, 4), (1, 3), (2, 2), (3, 1), (4, 0), (5, 0)])
def test_read_after_write(between: int, stall: int) -> None:
    """Figure 4: the next reader waits 4 cycles, the third one 2."""
    gap = f"{NOP}\n" * between
    reads = extra(f"movi r1, 1\n{gap}addi r2, r1, 1\n", f"movi r1, 1\n{gap}addi r2, r3, 1\n")
    assert reads == stall
    slower = {"control": {"raw_cycles": 9}}
    reads = extra(
        f"movi r1, 1\n{gap}addi r2, r1, 1\n", f"movi r1, 1\n{gap}addi r2, r3, 1\n", **slower
    )
    assert reads == 9 - between


@pytest.mark.parametrize(
    ("special", "instruction", "stalls"),
    [
        ("shift", "mac coop, result, r1, r1, 16", True),
        ("shift", "mac coop, keep, r1, r1, 16", False),
        ("out", "mac coop, result, r1, r1, 16", True),
        ("outputs", "vmov residual, coop, r1", True),
        ("high", "max r1, r1, 16", True),
        ("shift_a", "mac coop, result, r1, r1, 16", False),
        ("st_runs", "ld mbuf, r1, r1, r2, 1, all, own, in", False),
    ],
)
def test_special_registers_stall_their_readers(
    special: str, instruction: str, stalls: bool
) -> None:
    before = sets(outputs=4, r1=0, r2=16) + f"{NOP}\n" * 5
    written = cycles(before + f"movi {special}, 1\n{instruction}\n")
    other = cycles(before + f"movi r9, 1\n{instruction}\n")
    assert written - other == (4 if stalls else 0)


def test_figure_4() -> None:
    """Addresses between three macs stall for 12 cycles; in registers of their own for 2."""
    one = "movi r0, 0\nmovi r1, 0\nmac coop, keep, r0, r1, 1\n"
    one += "addi r0, r0, 1\naddi r1, r1, 1\nmac coop, keep, r0, r1, 1\n" * 2
    grouped = "".join(f"movi r{k}, {k}\n" for k in range(6))
    grouped += "".join(f"mac coop, keep, r{k}, r{k + 1}, 1\n" for k in (0, 2, 4))
    before = sets(outputs=4) + f"{NOP}\n" * 5
    plain = cycles(before + f"{NOP}\n" * 9)
    slow, fast = simulator(before + one + END), simulator(before + grouped + END)
    assert slow.run().layers == fast.run().layers == ()
    assert cycles(before + one) - cycles(before + grouped) == 10
    assert cycles(before + one) > plain


@pytest.mark.parametrize(("first", "place"), [(1, 1111), (2, 11111)])
def test_delay_slots_are_executed(first: int, place: int) -> None:
    """Four of them, whether the branch is taken (r1 = 1) or not, and no more."""
    text = sets(r1=first, r2=1) + "beq r1, r2, there\n"
    text += "".join(f"addi r3, r3, {10**k}\n" for k in range(5)) + "there: mov out, r3, 0\n"
    text += sets(outputs=4, low=7, high=7) + "mac scale, result, r0, r0, 4\n" + SYNC
    found = simulator(text + store(ACTIVATIONS, place, 4) + END, machine("snowflake-1cu"))
    found.run()
    assert results(found, 4).tolist() == [7] * 4


def test_loops_count() -> None:
    text = sets(r1=0, r2=10, r3=0) + "again: addi r1, r1, 1\nble r1, r2, again\naddi r3, r3, 5\n"
    text += f"{NOP}\n" * 3 + "mov high, r3, 0\nmov low, r3, 0\nmovi out, 64\n"
    text += "mac scale, result, r0, r0, 1\n" + SYNC + store(ACTIVATIONS, 64, 1)
    found = simulator(text + END, machine("snowflake-1cu"))
    found.run()
    assert results(found, 1).tolist() == [55]  # r1 = 0 to 10


def test_banks() -> None:
    """Code of many banks: each loads the next, and the core waits for it if memory is slow."""
    chunks = [f"addi r1, r1, {k}\n" + f"{NOP}\n" * 100 for k in range(40)]
    chunks += [sets(low=0) + "mov high, r1, 0\nmovi out, 64\nmac add, result, r0, r0, 1\n" + SYNC]
    chunks += [store(ACTIVATIONS, 64, 1) + END]
    code = packed(chunks)
    assert len(code) > 8 * BANK_INSTRUCTIONS
    seen = []
    for rate in (4.2, 0.1):
        on = machine("snowflake-1cu", dram={"bandwidth_gb_per_s": rate})
        base = on.dram.base_address
        segments = [Segment(base + ACTIVATIONS, 4096, True)]
        found = SnowflakeSimulator(on, [code], segments, ACTIVATIONS + 4096)
        seen.append(found.run().cycles)
        assert results(found, 1).tolist() == [sum(range(40))]
    per_bank = 2048 / machine("snowflake-1cu", dram={"bandwidth_gb_per_s": 0.1})\
        .memory_bytes_per_cycle  # fmt: skip
    assert seen[0] < len(code) + 400
    assert seen[1] > (len(code) / BANK_INSTRUCTIONS - 2) * per_bank


@pytest.mark.parametrize(
    ("mac", "a", "b", "expected"),
    [
        ("mac coop, keep, r1, r2, 160", 0, 0, 10),
        ("mac coop, keep, r1, r2, 161", 0, 0, 11),
        ("mac coop, keep, r1, r2, 160", 8, 0, 11),
        ("mac coop, keep, r1, r2, 160", 0, 8, 11),
        ("mac indp, keep, r1, r2, 160", 5, 0, 160),
        ("mac lane, keep, r1, r2, 7", 0, 0, 28),
        ("mac multiply, result, r1, r2, 160", 0, 0, 10),
        ("max r1, r2, 160", 0, 8, 11),
        ("mac table, result, r1, r2, 160", 0, 0, 40),
    ],
)
def test_rates(mac: str, a: int, b: int, expected: int) -> None:
    """One trace more takes this much longer, with the queue always full."""
    before = sets(r1=a, r2=b, out=2000, outputs=4 if "coop" in mac else 64, table_bits=12)
    more = extra(before + f"{mac}\n" * 60, before + f"{mac}\n" * 40)
    assert more == 20 * expected


def test_vmov_hides_behind_a_trace() -> None:
    """A bias costs nothing beside a trace of 36 cycles, and its cycle beside none."""
    before = sets(outputs=4, r1=0, r2=0, r3=0)
    group = "mac coop, result, r1, r2, 576\n"
    with_bias = extra(
        before + ("vmov bias, coop, r3\n" + group) * 30, before + group * 30
    )
    assert 0 <= with_bias <= 2
    wide = sets(outputs=64, r1=0, r2=0, r3=0)
    short = "mac indp, result, r1, r2, 1\n"
    # Results of 64 words leave in 4 cycles: no faster.
    assert extra(wide + short * 40, wide + short * 20) == 80


@pytest.mark.parametrize("latency", [12, 40])
def test_results_are_late(latency: int) -> None:
    """r1 can be read in cycle 6; the trace starts a cycle later and takes 100, its line one."""
    text = sets(outputs=4, r1=0) + "mac coop, result, r1, r1, 1600\n"
    assert cycles(text, vector={"latency_cycles": latency}) == 6 + 1 + 100 + 1 + latency


@pytest.mark.parametrize(
    ("memory", "count", "units"), [(0, 32, 1), (2, 32, 2), (0, 4096, 128), (62, 1, 1), (62, 2, 2)]
)
def test_memory_moves_units_of_64_bytes(memory: int, count: int, units: int) -> None:
    on = machine("snowflake-1cu")
    found = simulator(load("mbuf", memory, 0, count, 1) + END, on)
    start = simulator(sets(r25=memory, r26=0, r27=count) + END, on).run().cycles
    taken = found.run().cycles - start
    latency = on.load.latency_cycles
    assert taken == pytest.approx(4 + units * 64 / on.memory_bytes_per_cycle + latency)


def test_runs_count_each_for_itself() -> None:
    on = machine("snowflake-1cu")
    apart = sets(ld_runs=8, ld_memory_step=128, ld_buffer_step=16)
    beside = sets(ld_runs=8, ld_memory_step=32, ld_buffer_step=16)
    difference = extra(apart + load("mbuf", 0, 0, 16, 1), beside + load("mbuf", 0, 0, 16, 1))
    assert difference == pytest.approx(4 * 64 / on.memory_bytes_per_cycle)


def test_loads_run_beside_traces() -> None:
    on = machine("snowflake-1cu")
    traces = sets(r1=0, outputs=4) + "mac coop, keep, r1, r1, 4096\n" * 8
    loads = load("mbuf", 0, 8192, 16384, 1)
    alone, computing = cycles(loads), cycles(traces)
    both = cycles(loads + traces)
    assert both < max(alone, computing) + 20 < alone + computing - 500
    assert alone == pytest.approx(32768 / on.memory_bytes_per_cycle, rel=0.1)


def test_one_memory_for_all_clusters() -> None:
    """Two clusters that load take twice as long as one, unless they share the load."""
    two = machine("snowflake-2cc")
    nothing = END
    text = load("mbuf", 0, 0, 16384) + END
    shared = load("mbuf", 0, 0, 16384, shared="shared") + END
    one = simulator([text, nothing], two).run()
    both = simulator([text, text], two).run()
    together = simulator([shared, shared], two).run()
    assert both.cycles == pytest.approx(2 * one.cycles, rel=0.1)
    assert together.cycles == pytest.approx(one.cycles, rel=0.01)
    assert together.loaded_bytes == one.loaded_bytes == {"in": 32768}
    assert both.loaded_bytes == {"in": 65536}


def test_barriers_wait_for_the_last() -> None:
    two = machine("snowflake-2cc")
    slow = f"{NOP}\n" * 300
    done = simulator(["sync clusters, 0\n" + slow + END, slow + "sync clusters, 0\n" + END], two)
    assert done.run().cycles == pytest.approx(600, abs=10)


@pytest.mark.parametrize(("count", "waits"), [(16, 0), (17, 100), (20, 400)])
def test_a_full_queue_holds_the_core(count: int, waits: int) -> None:
    """16 traces of 100 cycles issue at once; each further one when one more is complete."""
    trace = "mac coop, keep, r1, r1, 1600\n"
    on = machine("snowflake-1cu")
    text = sets(r1=0, outputs=4) + f"{NOP}\n" * 4 + trace * count
    found = simulator(text + END, on, layer_names=["a"],
                      layer_of=[np.zeros(text.count("\n") + 1, np.int32)])  # fmt: skip
    log = EventLog()
    statistics = found.run(events=log)
    assert statistics.macs == count * 1600 * 4
    causes = log.runs[0].wait_cycles_by_cause("a")["core 0"]
    assert causes.get("vector queue", 0) == pytest.approx(waits, abs=20)
    assert causes["vector"] == pytest.approx(1600, abs=20)  # at the end, for what is left
    assert statistics.layers[0].wait_cycles("control")[0] == sum(causes.values())


def test_statistics_by_layer() -> None:
    on = machine("snowflake-1cu")
    texts = [load("mbuf", 0, 0, 64, 1), SYNC + sets(outputs=3, r1=0)]
    texts.append("mac coop, keep, r1, r1, 32\n")
    text = "".join(texts) + "mac indp, result, r1, r1, 5\n" + SYNC + store(ACTIVATIONS, 0, 40) + END
    found = simulator(text, on, layer_names=["one", "two"], layer_of=[_layers(texts, text)])
    statistics = found.run()
    one, two = statistics.layers
    assert (one.loaded_bytes, one.macs, one.bursts) == ({"in": 128}, 0, 2)
    assert (two.stored_bytes, two.macs) == ({"out": 80}, 32 * 3 + 5 * 3)
    assert statistics.macs == two.macs
    assert one.instructions + two.instructions == statistics.instructions
    profile = found.profile[1]
    assert profile.traces["coop"] == profile.traces["indp"] == 1
    assert profile.trace_words["coop"] == 32 and profile.store_units == 2


def _layers(texts: list[str], text: str) -> np.ndarray:
    first = sum(one.count("\n") for one in texts[:1])
    return np.where(np.arange(text.count("\n")) < first, 0, 1).astype(np.int32)
