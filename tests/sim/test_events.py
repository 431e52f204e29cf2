"""Events of a few instructions, number by number, on machines of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sim.nmp import programs as nmp
from tests.sim.nmp.programs import BASE, DATA, EXIT, segments, transfer, wait
from tests.sim.tiles import programs as tiles
from tests.sim.tiles import test_tile_dma_control as dmac
from tvm_npu.sim.events import Access, Event, EventLog
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.traps import Trap

TILE = {"n": 20, "row": 21}


def nmp_events(text: str, tles: int = 1, tlts: int = 2) -> list[Event]:
    code = assemble("li s4, 6\nli s5, -2\n" + text + EXIT, BASE, isa=NMP_ISA)
    found = NmpSimulator(
        nmp.small_machine(tles, tlts), code, BASE, nmp.DRAM_BYTES, layer_names=("a", "b"),
        layer_of=np.array([-1, -1] + [1] * (len(code) - 2), np.int32),
        stream_of=np.full(len(code), 2, np.int8), tile_registers=[TILE] * len(code),
    )  # fmt: skip
    log = EventLog()
    found.run(BASE, events=log)
    return list(log.runs[0])


def test_a_multicast_and_the_waits_for_it() -> None:
    text = segments(64) + "bnez a0, other\n" + transfer("nmp_mload", 3, "mb1", DATA, 16)
    text += "other: " + wait(3)
    load, *waits = nmp_events(text)
    assert load == Event(
        unit="dma 0", begin_cycles=load.begin_cycles, end_cycles=load.end_cycles, waits=False,
        what="nmp_mload", instruction=13, layer="b", tile={"n": 6, "row": -2}, stream="weight",
        links=("loaded",), bytes=64,
        accesses=(Access("mb1 0", 16, 80, True), Access("mb1 1", 16, 80, True)),
    )  # fmt: skip
    assert [event.unit for event in waits] == ["core 1", "core 0"]
    for event in waits:
        assert (event.waits, event.what, event.instruction) == (True, "nmp_wait", 15)
        assert event.end_cycles == load.end_cycles > event.begin_cycles > 0
        assert event.tile == load.tile and not event.accesses and not event.links


def test_an_operation_a_store_and_a_forward() -> None:
    text = nmp.mac(ELEMENT_BYTES=1, OUT_CHANNELS=1, OUT_ROWS=4, OUT_COLUMNS=8, IN_ADDRESS=8)
    text += "nmp_veop 1, copy\n" + wait(1)
    text += segments(32) + transfer("nmp_store", 2, "mb2", DATA) + wait(2)
    text += nmp.dma(RECEIVER_TLTS=2) + "li t4, 128\nli t5, 0\nnmp_forward 2, t4, t5\n"
    found = [
        replace(event, begin_cycles=0.0, end_cycles=0.0, instruction=0, tile={})
        for event in nmp_events("bnez a0, end\n" + text + "end: ") if not event.waits
    ]  # fmt: skip
    bare = Event("", 0.0, 0.0, False, "", 0, "b")
    assert found == [
        replace(bare, unit="mac 0", what="nmp_veop",
                accesses=(Access("mb0 0", 8, 40, False), Access("mb2 0", 0, 32, True))),
        replace(bare, unit="dma 0", what="nmp_store", stream="weight", links=("stored",),
                bytes=32, accesses=(Access("mb2 0", 0, 32, False),)),
        replace(bare, unit="dma 0", what="nmp_forward", stream="weight", links=("forwarded",),
                bytes=32, accesses=(Access("mb0 1", 128, 160, True),
                                    Access("mb2 0", 0, 32, False))),
    ]  # fmt: skip


def test_transfers_over_the_ring_say_so() -> None:
    text = "bnez a0, end\n" + segments(64) + nmp.dma(RECEIVER_TLES=3)
    text += transfer("nmp_load", 3, "mb0", DATA) + "end: " + wait(3)
    load = next(event for event in nmp_events(text, 2, 1) if event.bytes)
    assert load.links == ("loaded", "ring")
    assert load.accesses == (Access("mb0 0", 0, 64, True), Access("mb0 1", 0, 64, True))


def test_commands_of_tile_machines() -> None:
    text = tiles.load("input", 0, 64, 16) + tiles.store("input", 128, 64, 16) + "tend\n"
    found, log = tiles.simulator(text), EventLog()
    statistics = found.run(events=log)
    load, store = log.runs[0]
    assert load.accesses == (Access("input", 16, 80, True),)
    assert store.accesses == (Access("input", 16, 80, False),)
    assert (load.what, load.links, load.stream, load.bytes) == ("tload", ("loaded",), "other", 64)
    assert (store.what, store.links, store.stream) == ("tstore", ("stored",), "out")
    assert load.unit == store.unit == "mover" and load.instruction < store.instruction
    issue = float(load.instruction + 1)
    assert (load.begin_cycles, store.begin_cycles) == (issue, load.end_cycles)
    assert store.end_cycles == statistics.cycles


def test_programs_of_the_dma_controller() -> None:
    text = dmac.go(0, 128, 64) + "twait 0\ntend\n"
    found = tiles.simulator(text, dmac.zynq())
    found.write(tiles.CONSTANTS, dmac.constants())
    log = EventLog()
    statistics = found.run(events=log)
    load, wait_ = sorted(log.runs[0], key=lambda event: event.waits)
    assert (load.unit, load.what, load.links) == ("channel 0", "tgo", ("loaded",))
    assert load.accesses == (Access("shared", 64, 128, True),) and load.bytes == 64
    assert (wait_.unit, wait_.what, wait_.waits) == ("core", "twait", True)
    assert wait_.end_cycles == load.end_cycles <= statistics.cycles
    assert statistics.busy_cycles("dma")[0] == load.end_cycles - load.begin_cycles


def test_a_run_that_traps_has_no_events() -> None:
    found, log = nmp.simulator("ebreak\n"), EventLog()
    with pytest.raises(Trap):
        found.run(BASE, events=log)
    assert not log.runs
