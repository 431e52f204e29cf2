"""Hazards: wrong values where nothing orders two instructions, and a checker that names them."""

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
    results,
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode
from tvm_npu.sim.traps import Trap

DATA = np.arange(1, 4097, dtype=np.int16)
COPY = "mac scale, result, r1, r1, 64\n"


def ran(text: str, name: str = "snowflake-1cu", **options: Any) -> SnowflakeSimulator:
    found = simulator(text + END, machine(name), DATA, **options)
    found.run()
    return found


def copied(found: SnowflakeSimulator, count: int = 64) -> bool:
    return bool(np.array_equal(results(found, count), DATA[:count]))


def compute(sync_load: str, sync_vector: str) -> str:
    """Load, copy in MBuf, store: each needs the one before."""
    text = sets(r1=0, out=128) + load("mbuf", 0, 0, 64, 1) + sync_load
    return text + COPY + sets(r22=ACTIVATIONS, r23=128, r24=64) + sync_vector + (
        "tmov r22, r23, r24, 0, out\n"
    )


@pytest.mark.parametrize(
    ("load_sync", "vector_sync", "pairs"),
    [
        ("sync load, 0\n", "sync vector, 0\n", []),
        (SYNC, SYNC, []),
        ("", "sync vector, 0\n", [("ld", "mac")]),
        ("sync load, 0\n", "", [("mac", "tmov")]),
        ("sync load, 1\n", "sync vector, 1\n", [("ld", "mac"), ("mac", "tmov")]),
        ("sync vector, 0\n", "sync load, 0\n", [("ld", "mac"), ("mac", "tmov")]),
    ],
)
def test_what_sync_orders(load_sync: str, vector_sync: str, pairs: list[Any]) -> None:
    text = compute(load_sync, vector_sync)
    found = ran(text, layer_names=["first"], layer_of=[np.zeros(len(words(text + END)), np.int32)])
    named = [
        (one.earlier.instruction.split()[0], one.later.instruction.split()[0])
        for one in found.hazards
    ]
    assert named == pairs and copied(found) == (not pairs)
    for one in found.hazards:
        assert one.memory == "MBuf" and one.cus == (0,)
        assert (one.begin, one.end) == ((0, 64) if one.later.instruction[0] == "m" else (128, 192))
        assert one.earlier.layer == one.later.layer == "first"
        assert "of MBuf of CU 0: cluster 0 instruction" in str(one)
    if pairs:
        with pytest.raises(Trap, match="may not be complete") as caught:
            found.run(timing=False)
        assert caught.value.code is SnowflakeTrapCode.HAZARD
        assert caught.value.place.instruction.split()[0] == pairs[0][1]
        assert caught.value.place.layer == "first"
    else:
        found.run(timing=False)
        assert copied(found)


def test_a_vector_instruction_reads_what_the_last_one_has_not_written() -> None:
    """Order does not help: results are 12 cycles late. The 16th instruction behind it only
    issues when it is complete."""
    chain = sets(r1=0, r2=128, out=128, out_step=128) + load("mbuf", 0, 0, 64, 1) + SYNC + COPY
    again = "mac scale, result, r2, r2, 64\n"
    end = SYNC + store(ACTIVATIONS, 256, 64)
    broken = ran(chain + again + end)
    assert len(broken.hazards) == 1 and not copied(broken)
    waited = ran(chain + "sync vector, 0\n" + again + end)
    assert not waited.hazards and copied(waited)
    filler = sets(out=5000, out_step=0, r4=6000) + "mac scale, result, r4, r4, 16\n"
    for count in (14, 15):
        text = chain + filler + "mac scale, result, r4, r4, 16\n" * (count - 1)
        found = ran(text + sets(out=256) + again + end)
        assert bool(found.hazards) == (count == 14)


def test_a_load_into_what_a_trace_still_reads() -> None:
    """Write after read: the trace is long and its words are replaced before it starts."""
    text = sets(r1=0, r2=2048, out=8192, outputs=4) + load("mbuf", 0, 0, 64, 1)
    text += load("wbuf", 0, 0, 4096, 1) + SYNC
    text += "mac coop, keep, r2, r2, 2000\n" * 8 + COPY
    change = load("mbuf", 128, 0, 64, 1)
    end = SYNC + store(ACTIVATIONS, 8192, 64)
    broken, good = ran(text + change + end), ran(text + "sync vector, 0\n" + change + end)
    assert [one.later.instruction[:2] for one in broken.hazards] == ["ld"] and not copied(broken)
    assert not good.hazards and copied(good)


def test_a_trace_that_overwrites_what_is_being_stored() -> None:
    text = sets(r1=0, out=0, r9=64) + load("mbuf", 0, 0, 4096, 1) + SYNC
    text += store(ACTIVATIONS, 0, 4096)
    change = "mac scale, result, r9, r9, 64\n"
    broken = ran(text + change)
    good = ran(text + "sync store, 0\n" + change)
    assert [one.earlier.instruction[:4] for one in broken.hazards] == ["tmov"]
    assert not copied(broken) and not good.hazards and copied(good)


def test_a_load_of_what_is_being_stored() -> None:
    """Through memory."""
    text = load("mbuf", 0, 0, 64, 1) + SYNC + store(ACTIVATIONS + 4096, 0, 64)
    back = load("mbuf", ACTIVATIONS + 4096, 128, 64, 1) + SYNC + store(ACTIVATIONS, 128, 64)
    broken, good = ran(text + back), ran(text + "sync store, 0\n" + back)
    assert [one.memory for one in broken.hazards] == ["memory"]
    assert broken.hazards[0].begin == ACTIVATIONS + 4096
    assert not good.hazards and copied(good)


@pytest.mark.parametrize(
    ("place", "words_moved", "runs", "step", "meets"),
    [
        (64, 8, 1, 0, False), (60, 8, 1, 0, True), (200, 8, 8, -32, False),
        (200, 8, 6, -32, True), (64, 16, 4, 32, False), (56, 8, 4, 32, True),
        (56, 8, 4, -32, True), (100, 28, 3, 50, False),
    ],
)  # fmt: skip
def test_runs_are_compared_exactly(
    place: int, words_moved: int, runs: int, step: int, meets: bool
) -> None:
    """A trace over words 0..63, and a load of runs beside it (words 40..47 are read as well)."""
    touched = {
        place + k * step + i for k in range(runs) for i in range(words_moved)
    } & set(range(64))
    text = sets(r1=0, out=8192) + sets(ld_runs=runs, ld_buffer_step=step)
    text += sets(r25=0, r26=place, r27=words_moved) + f"{NOP}\n" * 5 + COPY
    if min(place, place + (runs - 1) * step) < 0:
        pytest.skip("outside of MBuf")
    found = ran(text + "ld mbuf, r25, r26, r27, 1, all, own, in\n")
    assert bool(found.hazards) == bool(touched)
    assert bool(touched) == meets or runs == 8


def test_other_cus_are_no_hazard() -> None:
    text = sets(r1=0, out=128, cus=1) + COPY
    assert not ran(text + load("mbuf", 0, 0, 64, 2), "snowflake-1cc").hazards
    assert ran(text + load("mbuf", 0, 0, 64, 3), "snowflake-1cc").hazards


@pytest.mark.parametrize("barrier", ["", "sync clusters, 0\n"])
def test_clusters_meet_in_memory(barrier: str) -> None:
    """One cluster stores what the other one loads."""
    first = load("mbuf", 0, 0, 64) + SYNC + store(ACTIVATIONS + 4096, 0, 64) + barrier + END
    second = barrier + load("mbuf", ACTIVATIONS + 4096, 0, 64) + SYNC
    second += store(ACTIVATIONS, 0, 64) + END
    found = simulator([first, second], machine("snowflake-2cc"), DATA)
    found.run()
    if barrier:
        assert not found.hazards and copied(found)
        return
    assert not copied(found)
    (one,) = found.hazards
    assert (one.earlier.unit, one.later.unit) == ("cluster 0", "cluster 1")
    assert one.memory == "memory"
    assert (one.begin, one.end) == (ACTIVATIONS + 4096, ACTIVATIONS + 4096 + 128)
    with pytest.raises(Trap, match="may not be complete"):
        found.run(timing=False)


def test_clusters_that_interleave_do_not_meet() -> None:
    """Stores of alternate runs into one range, and more of them than the log holds at first."""
    def half(which: int) -> str:
        text = load("mbuf", 0, 0, 64) + SYNC + sets(st_runs=32, st_memory_step=128)
        text += sets(r1=0, r2=4999, r22=ACTIVATIONS + 64 * which, r23=0, r24=32)
        text += "again: addi r1, r1, 1\ntmov r22, r23, r24, 0, out\nble r1, r2, again\n"
        return text + f"{NOP}\n" * 4 + END

    found = simulator([half(0), half(1)], machine("snowflake-2cc"), DATA)
    assert found.run().stored_bytes == {"out": 2 * 5000 * 2048} and not found.hazards
    overlapping = half(1).replace("movi r24, 32", "movi r24, 33")
    found = simulator([half(0), overlapping], machine("snowflake-2cc"), DATA)
    found.run()
    assert found.hazards
