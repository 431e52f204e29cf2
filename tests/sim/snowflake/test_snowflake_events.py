"""Events of Snowflake machines: number by number, and sums that are the statistics'."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest

from tests.sim.event_sums import check_events
from tests.sim.snowflake.differential import loaded, program
from tests.sim.snowflake.kernels import Layer, coop, run
from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    END,
    SYNC,
    load,
    machine,
    sets,
    simulator,
    store,
    words,
)
from tests.sim.snowflake.test_snowflake_kernels import arrays
from tvm_npu.sim import event_table
from tvm_npu.sim.events import Access, Event, EventLog, Events
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.traps import Trap

DATA = np.arange(1, 4097, dtype=np.int16)


@pytest.fixture(autouse=True)
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of events have to grow."""
    monkeypatch.setattr(event_table, "FIRST_CAPACITY", 2)


def recorded(found: SnowflakeSimulator, timing: bool = True) -> tuple[Events, RunStatistics]:
    """Checks that events change nothing and are the same in the next run."""
    before, log = found.run(timing=timing), EventLog()
    memory = found.dram.copy()
    statistics = found.run(timing=timing, events=log)
    assert statistics == before and np.array_equal(found.dram, memory)
    found.run(timing=timing, events=log)
    assert list(log.runs[0]) == list(log.runs[1])
    check_events(log.runs[0], statistics, found.machine, found.layer_names)
    return log.runs[0], statistics


def named(text: str, on: str = "snowflake-1cu") -> SnowflakeSimulator:
    """All instructions belong to layer "a"."""
    layers = [np.zeros(len(words(text)), np.int32)] * machine(on).clusters.count
    return simulator(text, machine(on), DATA, layer_names=["a"], layer_of=layers)


def test_a_load_a_trace_and_a_store() -> None:
    text = load("mbuf", 0, 16, 32, 1) + load("wbuf", 128, 64, 8, 1, "v2", "weight") + SYNC
    text += sets(outputs=3, r1=16, r2=64, out=128) + "vmov bias, coop, r2\n"
    text += "mac coop, result, r1, r2, 5\n" + SYNC + store(ACTIVATIONS + 64, 128, 3) + END
    events, statistics = recorded(named(text))
    busy = [event for event in events if not event.waits]
    rows = [event.instruction for event in busy]
    assert [words(text)[row] for row in rows] and rows == [3, 3, 7, 7, 13, 14, 19, 19]
    maps, _, kernels, _, bias, trace, stored, _ = busy
    assert maps == Event(
        "load 0", maps.begin_cycles, maps.end_cycles, False, "ld mbuf", 3, "a", {}, "in",
        ("loaded",), 64, (Access("mbuf 0", 32, 96, True),),
    )  # fmt: skip
    assert busy[1].unit == "memory" and busy[1].accesses == (Access("dram", 0, 64, False),)
    assert maps.end_cycles - maps.begin_cycles == pytest.approx(64 / 29.4)
    assert kernels.accesses == (Access("wbuf 2", 128, 144, True),)
    assert (kernels.stream, kernels.bytes, kernels.what) == ("weight", 16, "ld wbuf")
    assert (bias.unit, bias.what) == ("vmov 0", "vmov bias")
    assert bias.accesses == tuple(Access(f"wbuf {v}", 128, 132, False) for v in range(3))
    assert (trace.unit, trace.what, trace.end_cycles - trace.begin_cycles) == (
        "mac 0", "mac coop", 1,
    )  # fmt: skip
    assert set(trace.accesses) == {
        *(Access(f"wbuf {v}", 128, 138, False) for v in range(3)),
        Access("mbuf 0", 32, 42, False), Access("mbuf 0", 256, 262, True),
    }  # fmt: skip
    assert (stored.links, stored.bytes, stored.what) == (("stored",), 6, "tmov")
    assert stored.accesses == (Access("mbuf 0", 256, 262, False),)
    assert busy[-1].accesses == (Access("dram", ACTIVATIONS + 64, ACTIVATIONS + 70, True),)
    causes = events.wait_cycles_by_cause()
    assert set(causes["core 0"]) == {"register", "load", "vector", "store"}
    assert "load 0" not in causes
    assert statistics.layers[0].busy_cycles("control") == (statistics.instructions,)


@pytest.mark.parametrize(
    ("text", "unit", "cause"),
    [
        ("movi r1, 5\nadd r2, r1, r1\n", "core 0", "register"),
        (sets(outputs=4) + "mac coop, keep, r0, r0, 999\n" * 17, "core 0", "vector queue"),
        (sets(r1=0, r2=0, r3=9) + "ld mbuf, r1, r2, r3, 1, all, own, in\n" * 40, "core 0",
         "load queue"),
        (sets(r22=ACTIVATIONS, r23=0, r24=9) + "tmov r22, r23, r24, 0, out\n" * 20, "core 0",
         "store queue"),
        (sets(outputs=4) + "mac coop, keep, r0, r0, 999\nsync vector, 0\n", "core 0", "vector"),
        (load("mbuf", 0, 0, 999, 1) + "sync load, 0\n", "core 0", "load"),
        (store(ACTIVATIONS, 0, 999) + "sync all, 0\n", "core 0", "store"),
        # 64 results leave in 4 cycles, and the traces take one each.
        (sets(outputs=64) + "mac indp, result, r0, r0, 1\n" * 9, "mac 0", "write port"),
        (sets(outputs=64) + "vmov bias, indp, r0\nmac indp, result, r0, r0, 1\n" * 4, "mac 0",
         "vmov"),
        (load("mbuf", 0, 0, 999, 1) + store(ACTIVATIONS, 2000, 9), "store 0", "memory"),
        (sets(r28=64, r29=512, r30=2) + "ld icache, r28, r29, r30, 0, all, own, other\n"
         "beq r31, r31, 2032\n" + "movi r31, 0\n" * 4, "core 0",
         "instructions"),
    ],
)  # fmt: skip
def test_every_cause_has_its_name(text: str, unit: str, cause: str) -> None:
    if cause == "instructions":
        lines = words(text)
        code = np.pad(lines, (0, 16 - len(lines)))
        found = SnowflakeSimulator(machine("snowflake-1cu"), [np.append(code, words(END))], [], 64)
    else:
        found = named(text + END)
    events, statistics = recorded(found)
    total = events.wait_cycles_by_cause()[unit]
    assert total[cause] > 0
    if found.layer_names:
        assert events.wait_cycles_by_cause("a")[unit] == total
        waiting = {one.name: one.wait_cycles for one in statistics.layers[0].units}
        assert waiting[unit] == pytest.approx(sum(total.values()))


def test_clusters_wait_for_each_other() -> None:
    slow = "movi r31, 0\n" * 90
    meet = load("mbuf", 0, 0, 999, 15, "all", "in", "shared") + "sync clusters, 0\n" + END
    found = simulator([slow + meet, meet], machine("snowflake-2cc"), DATA)
    events, statistics = recorded(found)
    causes = events.wait_cycles_by_cause()
    assert causes["load 1"] == {"clusters": pytest.approx(90)}
    assert "load 0" not in causes and "clusters" not in causes["core 0"]
    busy = events.busy_cycles()
    assert busy["load 0"] == busy["load 1"] == busy["memory"] > 0
    assert statistics.loaded_bytes == {"in": 1998}
    first, second = (event for event in events if event.unit[:4] == "load" and not event.waits)
    assert (first.bytes, second.bytes, second.links) == (1998, 0, ())
    late = simulator([slow + "sync clusters, 0\n" + END, "sync clusters, 0\n" + END],
                     machine("snowflake-2cc"), DATA)  # fmt: skip
    assert recorded(late)[0].wait_cycles_by_cause() == {"core 1": {"clusters": 90}}


@pytest.mark.parametrize("name", ["snowflake-1cu", "snowflake-1cc"])
@pytest.mark.parametrize("timing", [True, False])
def test_a_convolution(name: str, timing: bool) -> None:
    on = machine(name)
    layer = Layer(size=6, planes=32, filters=8 * on.clusters.cus, kernel=3, pad=1)
    maps, weights, bias = arrays(layer, 4)
    found, _, _ = run(coop(layer, on, weights, bias, 2), layer, on, maps)
    events, statistics = recorded(found, timing)
    (row,) = statistics.layers
    assert row.bytes_by_link == statistics.bytes_by_link and row.macs == layer.macs
    assert timing or not (events.begin_cycles.any() or events.end_cycles.any())
    if timing:
        traces = [event for event in events if event.what == "mac coop" and not event.waits]
        assert len(traces) == found.profile[0].traces["coop"]
        assert row.busy_cycles("mac")[0] >= layer.macs / on.macs_per_cycle(2)
        assert row.cycles == statistics.cycles


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """The first of a row of programs that comes to its end: events change nothing."""
    for number in count():
        made = program(random.Random(f"events {seed} {number}"))
        layers = [np.arange(len(one), dtype=np.int32) * 3 // len(one) - 1 for one in made.code]
        plain, noted = (
            loaded(made, layer_names=["a", "b"], layer_of=layers) for _ in range(2)
        )
        try:
            statistics = plain.run()
        except Trap:
            continue
        log = EventLog()
        assert noted.run(events=log) == statistics and np.array_equal(noted.dram, plain.dram)
        check_events(log.runs[0], statistics, made.machine, noted.layer_names)
        return
