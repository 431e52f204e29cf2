"""Slices end within long transfers and the clusters' check, change nothing, and what takes time
counts as work."""

from __future__ import annotations

import itertools
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
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.compiled import slices
from tvm_npu.sim.snowflake import engine
from tvm_npu.sim.snowflake.columns import LOG, MOST_LOG
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator
from tvm_npu.sim.snowflake.state import resumed
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode
from tvm_npu.sim.traps import Trap
from tvm_npu.sim.watch import Store

DATA = np.arange(1, 4097, dtype=np.int16)
MOST_SLICES = 20_000
OF_SLICES = {"moves", "log", "events", "event_times"}
"""Fields of the state that may depend on where slices end."""


def sliced(patch: pytest.MonkeyPatch, work: int) -> list[int]:
    """Runs have slices of so much work from now on; each adds what it returned."""
    outcomes: list[int] = []
    run = engine.run_device

    def counted(*arguments: Any) -> int:
        outcomes.append(run(*arguments))
        assert len(outcomes) < MOST_SLICES, "a run does not go on"
        return outcomes[-1]

    patch.setattr(slices, "SLICE_WORK", work)
    patch.setattr(engine, "run_device", counted)
    return outcomes


def left(found: SnowflakeSimulator) -> dict[str, np.ndarray]:
    """All that a run leaves."""
    fields = {k: v.copy() for k, v in found._state._asdict().items() if k not in OF_SLICES}
    fields["work"] = fields["work"][: slices.SLICE]
    fields["executed"] = fields["executed"][: slices.SLICE]
    return fields


def assert_alike(one: SnowflakeSimulator, other: SnowflakeSimulator) -> None:
    want = left(other)
    for name, array in left(one).items():
        np.testing.assert_array_equal(array, want[name], name)
    assert one.hazards == other.hazards


def work_of(text: str, name: str = "snowflake-1cu", **options: Any) -> int:
    found = simulator(text + END, machine(name), DATA, **options)
    found.run()
    return int(found._state.work[slices.DONE])


RUNS = 60


def transfers() -> str:
    """Loads and stores whose runs write over each other, several in the queues."""
    text = sets(LD_RUNS=RUNS, LD_MEMORY_STEP=6, LD_BUFFER_STEP=3, r1=64, r2=1500, r3=16)
    text += "ld wbuf, r1, r2, r3, 13, all, own, in\nld wbuf, r1, r3, r3, 6, 2, own, in\n"
    text += sets(LD_BUFFER_STEP=-3) + "ld mbuf, r1, r2, r3, 11, all, own, in\n" + SYNC
    text += sets(ST_RUNS=RUNS, ST_MEMORY_STEP=-2, ST_BUFFER_STEP=5)
    return text + store(ACTIVATIONS + 600, 1400, 7, 1) + store(ACTIVATIONS + 610, 1390, 7, 0)


@pytest.mark.parametrize("work", [1, 100])
def test_transfers_end_with_slices(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = (simulator(transfers() + END, None, DATA) for _ in range(2))
    want = whole.run()
    outcomes = sliced(monkeypatch, work)
    assert cut.run() == want
    assert_alike(cut, whole)
    moves = RUNS * ((3 * 4 + 2 * 1 + 3) * 16 + 2 * 7)  # words
    runs = RUNS * (3 * 4 + 2 * 1 + 3 + 2)
    assert len(outcomes) >= (runs if work == 1 else moves / (work + 16))


def test_a_watch_hears_of_stores_that_slices_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watcher:
        def begins(self, dram: np.ndarray) -> None:
            self.dram, self.seen = dram, dram.copy()
            self.calls = 0

        def stored(self, stores: Any) -> None:
            for one in stores:
                assert isinstance(one, Store)
                self.seen[one.within] = self.dram[one.within]
            assert np.array_equal(self.seen, self.dram)
            self.calls += 1

    found = simulator(transfers() + END, None, DATA)
    sliced(monkeypatch, 1)
    watch = Watcher()
    watch.begins(found.dram)
    found.run(watch=watch)
    assert watch.calls == 2


COUNT = 100
MAXES = "max r1, r2, 1\n" * COUNT


def test_comparisons_cost_work() -> None:
    """Each of a vector instruction or a transfer with what is pending, and of hazards that are
    found with those that are recorded."""
    operands = sets(r1=0, r2=0, r3=1, r4=512, OUT=4096, CUS=1)
    far, near = load("mbuf", 0, 256, 16, 1), load("mbuf", 0, 0, 16, 1)
    ordered = work_of(operands + 4 * near + SYNC + MAXES)
    assert work_of(operands + 4 * far + MAXES) == ordered
    # The first meets four loads, others as many; the four hazards of each are new, up to 64.
    found = work_of(operands + 4 * near + MAXES) - ordered
    pairs, recorded = 4 * COUNT, sum(min(k, 64) for k in range(4 * COUNT))
    assert found == 8 * pairs + recorded
    # Vector instructions that read what earlier ones write: the queue keeps some of them pending.
    chained = work_of(operands + sets(OUT=0) + MAXES) - work_of(operands + MAXES)
    assert chained > 8 * COUNT
    # Transfers beside pending vector instructions, though they meet none.
    stores = "tmov r1, r4, r3, 0, out\n" * 4
    many = f"movi r1, {ACTIVATIONS >> 12}\nmov r1, r1, 12\n" + 10 * "max r2, r2, 1\n"
    waits = work_of(operands + many + SYNC + stores)
    assert work_of(operands + many + stores) == waits + 8 * 10 * 4


def test_vector_results_cost_work() -> None:
    """What vmov brings, sums that are divided, words that are looked up."""
    base = work_of(sets(OUTPUTS=64, r1=0))
    assert work_of(sets(OUTPUTS=64, r1=0) + "vmov residual, indp, r1\n" * 9) == base + 9 * 64
    assert work_of(sets(OUTPUTS=64, r1=0) + "vmov bias, indp, r1\n" * 9) == base + 9 * 64
    with pytest.raises(Trap) as caught:
        work_of("vmov residual, indp, r1\n" * 9, most_work=9 * 64 - 1)
    assert caught.value.code is SnowflakeTrapCode.BUDGET and caught.value.place.index == 8
    one = work_of("mac indp, result, r1, r1, 1\n") - work_of("mac indp, keep, r1, r1, 1\n")
    assert one == 8 * 64
    table = "mac table, result, r1, r1, 100\n"
    assert work_of(sets(TABLE_BITS=8, OUT=512) + table) == 8 * 100


def accesses(seed: int) -> tuple[list[str], set[tuple[int, int, int, int]]]:
    """Programs of four clusters that load and store near each other, twice with a barrier behind;
    and the hazards among clusters: (cluster, number) of both."""
    random = np.random.default_rng(seed)
    texts, touched = [""] * 4, []
    for phase, c in itertools.product(range(2), range(4)):
        for number in range(5):
            stores = bool(random.integers(2))
            at = ACTIVATIONS + 2 * int(random.integers(1200))
            count, runs = (int(random.integers(1, 9)) for _ in range(2))
            step = 2 * int(random.integers(-9, 60))
            at += max(0, -step * runs)
            which = "ST" if stores else "LD"
            texts[c] += SYNC + sets(**{f"{which}_RUNS": runs, f"{which}_MEMORY_STEP": step})
            texts[c] += store(at, 0, count) if stores else load("mbuf", at, 64, count)
            place = {at + step * k + i for k in range(runs) for i in range(2 * count)}
            touched.append((phase, c, 5 * phase + number, stores, place))
        texts[c] += "sync clusters, 0\n"
    pairs = set()
    for one, other in itertools.permutations(touched, 2):
        if one[0] == other[0] and one[1] != other[1] and one[3] and one[4] & other[4]:
            if not other[3] or one[1] < other[1]:
                pairs.add((one[1], one[2], other[1], other[2]))
    return [text + END for text in texts], pairs


def numbered(found: SnowflakeSimulator, texts: list[str]) -> set[tuple[int, int, int, int]]:
    """The hazards that a run found, by clusters and numbers of transfers."""
    moves = [[line[:2] in ("ld", "tm") for line in text.splitlines()] for text in texts]
    numbers = [np.cumsum(one) for one in moves]
    pairs = set()
    for one in found.hazards:
        place = []
        for end in (one.earlier, one.later):
            c = int(end.unit.split()[1])
            place += [c, int(numbers[c][end.index]) - 1]
        pairs.add(tuple(place))
    return pairs


@pytest.mark.parametrize("seed", range(3))
def test_the_check_of_clusters_goes_on(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that end behind every comparison find the hazards that an unsliced run finds, and
    those that there are."""
    texts, pairs = accesses(seed)
    whole, cut, strict, strict_cut = (
        simulator(texts, machine("snowflake-4cc"), DATA) for _ in range(4)
    )
    whole.run()
    assert 10 < len(pairs) <= 64 and numbered(whole, texts) == pairs
    with pytest.raises(Trap) as trap:
        strict.run(timing=False)
    outcomes = sliced(monkeypatch, 1)
    cut.run()
    assert_alike(cut, whole)
    assert len(outcomes) > 2 * len(pairs)
    with pytest.raises(Trap) as caught:
        strict_cut.run(timing=False)
    assert str(caught.value) == str(trap.value)
    assert_alike(strict_cut, strict)


def test_the_log_has_an_end() -> None:
    """One store more than it holds traps. It does not grow beyond."""
    text = sets(r1=ACTIVATIONS, r2=0, r3=1, r4=0, r5=MOST_LOG - 64) + "again:\n"
    text += "tmov r1, r2, r3, 0, out\n" * 64 + "addi r4, r4, 64\nble r4, r5, again\n"
    text += f"{NOP}\n" * 4 + "tmov r1, r2, r3, 0, out\n"
    found = simulator([text + END, END], machine("snowflake-2cc"))
    with pytest.raises(Trap, match=f"{MOST_LOG}") as caught:
        found.run()
    assert caught.value.code is SnowflakeTrapCode.NO_BARRIER
    assert caught.value.place.index == len(words(text)) - 1
    assert found._state.log_count.max() == found._state.log.shape[2] == MOST_LOG > LOG
    assert resumed(found._state).log.shape[2] == MOST_LOG
