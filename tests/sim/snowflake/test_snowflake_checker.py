"""The checker against sets of words: loud exactly where two instructions touch the same word, and
about mutants of kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from studies.snowflake_layers.mutants import Fate, Ran, judge, mutants
from tests.examples import examples
from tests.sim.snowflake.kernels import Layer, coop, indp, run
from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    END,
    load,
    machine,
    sets,
    simulator,
    store,
    words,
)
from tests.sim.snowflake.test_snowflake_kernels import arrays
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator
from tvm_npu.sim.traps import Trap

Words = frozenset[tuple[str, int]]
NOTHING: Words = frozenset()


@dataclass(frozen=True)
class Touched:
    """An instruction's text, its unit, and what it reads and writes: (memory, word)."""

    text: str
    unit: str
    reads: Words
    writes: Words

    def conflicts(self, later: Touched) -> bool:
        if self.unit == later.unit:
            return self.unit == "vector" and bool(self.writes & later.reads)
        both = self.writes & (later.reads | later.writes) | self.reads & later.writes
        return bool(both)


def _runs(memory: str, begin: int, count: int, runs: int = 1, step: int = 0) -> Words:
    return frozenset(
        (memory, begin + k * step + i) for k in range(runs) for i in range(count)
    )


def _all(parts: list[Words]) -> Words:
    return NOTHING.union(*parts)


def _cus(mask: int) -> list[int]:
    return [u for u in range(4) if mask >> u & 1]


@st.composite
def transfers(draw: st.DrawFn) -> Touched:
    runs, count = draw(st.integers(1, 5)), draw(st.integers(1, 30))
    step, jump = draw(st.integers(-40, 40)), draw(st.integers(-20, 20))
    place, byte = 200 + draw(st.integers(0, 100)), ACTIVATIONS + 400 + 2 * draw(st.integers(0, 50))
    memory = _runs("memory", byte // 2, count, runs, jump)
    if draw(st.booleans()):
        cu = draw(st.integers(0, 3))
        text = sets(st_runs=runs, st_buffer_step=step, st_memory_step=2 * jump)
        touched = _runs(f"mbuf {cu}", place, count, runs, step)
        return Touched(text + store(byte, place, count, cu), "store", touched, memory)
    mask, vmac = draw(st.integers(1, 15)), draw(st.sampled_from((0, 1, 2, 3, 4)))
    buffer = draw(st.sampled_from(("mbuf", "wbuf")))
    text = sets(ld_runs=runs, ld_buffer_step=step, ld_memory_step=2 * jump)
    text += load(buffer, byte, place, count, mask, "all" if vmac == 4 else f"v{vmac}")
    names = [f"mbuf {u}" for u in _cus(mask)]
    if buffer == "wbuf":
        names = [f"wbuf {u} {v}" for u in _cus(mask) for v in range(4) if vmac in (v, 4)]
    return Touched(text, "load", memory, _all([_runs(n, place, count, runs, step) for n in names]))


@st.composite
def vectors(draw: st.DrawFn) -> Touched:
    a, b = 200 + draw(st.integers(0, 100)), 16 * draw(st.integers(12, 20))
    out, length = 200 + draw(st.integers(0, 100)), draw(st.integers(1, 12))
    mask, target = draw(st.integers(1, 15)), draw(st.integers(1, 15))
    is_coop, step = draw(st.booleans()), draw(st.integers(0, 50))
    kind = draw(st.sampled_from(("stream", "table", "bias", "residual", "sums", "mac", "lane")))
    is_coop &= kind != "lane"
    outputs = draw(st.integers(1, {"lane": 9}.get(kind, 16 if is_coop else 64)))
    text = sets(r1=a, r2=b, out=out, cus=mask, target=target, outputs=outputs, lane_step=step)
    cus = _cus(mask)
    if is_coop:
        cus = [u for u in cus if 4 * u < outputs]
        vmacs = {u: min(4, outputs - 4 * u) for u in cus}
    else:
        vmacs = {u: -(-outputs // 16) for u in cus}

    def weights(begin: int, count: int) -> Words:
        return _all([_runs(f"wbuf {u} {v}", begin, count) for u in cus for v in range(vmacs[u])])

    def by_cu(begin: int, width: int) -> list[tuple[int, int]]:
        """(begin, words) of each CU's share of coop results."""
        return [(begin + 4 * u * width, vmacs[u] * width) for u in cus]

    if kind in ("stream", "table"):
        cus = _cus(mask)
        made = _all([_runs(f"mbuf {u}", out, length) for u in cus])
        reads = _all([_runs(f"mbuf {u}", a, length) for u in cus])
        if kind == "table":
            text += sets(table_bits=11) + f"mac table, result, r1, r2, {length}\n"
            tables = [
                _runs(f"wbuf {u} {v}", b, 33) for u in cus for v in range(min(4, length))
            ]
            return Touched(text, "vector", reads | _all(tables), made)
        op = draw(st.sampled_from(("max r1, r2", "mac add, result, r1, r2",
                                   "mac multiply, result, r1, r2", "mac scale, result, r1, r2")))
        if "scale" not in op:
            reads |= _all([_runs(f"mbuf {u}", b, length) for u in cus])
        return Touched(text + f"{op}, {length}\n", "vector", reads, made)
    layout = "coop" if is_coop else "indp"
    if kind not in ("mac", "lane"):
        text += f"vmov {kind}, {layout}, r1\n"
        if kind == "bias":
            return Touched(text, "vector", weights(a, 2 if is_coop else 2 * min(16, outputs)),
                           NOTHING)  # fmt: skip
        width = 3 if kind == "sums" else 1
        if is_coop:
            lowest = f"mbuf {_cus(target)[0]}"
            return Touched(text, "vector", _all([_runs(lowest, *p) for p in by_cu(a, width)]),
                           NOTHING)  # fmt: skip
        reads = _all([_runs(f"mbuf {u}", a, outputs * width) for u in cus])
        return Touched(text, "vector", reads, NOTHING)
    mode = "lane" if kind == "lane" else layout
    finish, width = draw(st.sampled_from((("keep", 0), ("result", 1), ("sums", 3))))
    text += f"mac {mode}, {finish}, r1, r2, {length}\n"
    reads = weights(b, length if is_coop else 16 * length)
    for u in cus:
        lanes = _runs(f"mbuf {u}", a, outputs, length, step)
        reads |= lanes if mode == "lane" else _runs(f"mbuf {u}", a, length)
    made = NOTHING
    if is_coop:
        parts = by_cu(out, width)
        made = _all([_runs(f"mbuf {t}", *part) for t in _cus(target) for part in parts])
    else:
        made = _all([_runs(f"mbuf {u}", out, outputs * width) for u in cus])
    return Touched(text, "vector", reads, made)


def _expected(instructions: list[Touched], syncs: list[tuple[str, int]]) -> set[tuple[int, int]]:
    """Pairs (earlier, later) that meet; before each instruction stands a `sync`."""
    issued: dict[str, list[int]] = {"vector": [], "load": [], "store": []}
    known = dict.fromkeys(issued, 0)
    found = set()
    for n, (one, (unit, pending)) in enumerate(zip(instructions, syncs, strict=True)):
        known[unit] = max(known[unit], len(issued[unit]) - pending)
        for other, numbers in issued.items():
            found |= {(k, n) for k in numbers[known[other] :] if instructions[k].conflicts(one)}
        issued[one.unit].append(n)
    return found


SYNCS = st.tuples(st.sampled_from(("vector", "load", "store")), st.integers(0, 3))


@settings(deadline=None, max_examples=examples(400), phases=[Phase.explicit, Phase.generate])
@given(st.lists(st.tuples(st.one_of(vectors(), transfers()), SYNCS), min_size=2, max_size=6))
def test_loud_exactly_where_words_meet(steps: list[tuple[Touched, tuple[str, int]]]) -> None:
    instructions, syncs = [one for one, _ in steps], [sync for _, sync in steps]
    texts = [f"sync {what}, {n}\n{one.text}" for one, (what, n) in steps]
    found = simulator("".join(texts) + END, machine(), np.zeros(4096, np.int16))
    try:
        found.run()
    except Trap:  # undefined words of a buffer can make a sum that does not fit
        return
    ends = np.cumsum([len(words(text)) for text in texts]).tolist()
    named = {
        (ends.index(one.earlier.index + 1), ends.index(one.later.index + 1))
        for one in found.hazards
    }
    assert named == _expected(instructions, syncs)


def _runner(built: Any, layer: Layer, on: Any, maps: np.ndarray) -> Any:
    def ran(code: np.ndarray) -> Ran:
        found, _, results = run(replace(built, code=code), layer, on, maps)
        return Ran(results.copy(), found.hazards)

    return ran


@pytest.mark.parametrize("mode", ["coop", "indp"])
def test_every_sync_of_a_kernel_is_needed(mode: str) -> None:
    """Without any one `sync` of a convolution, or with one that waits for less, the checker finds
    it, or other instructions order the same: nothing is wrong in silence."""
    on = machine("snowflake-1cu", clusters={"mbuf_bytes": 65536, "wbuf_bytes": 2048})
    filters = 16
    if mode == "indp":
        on = machine("snowflake-1cc")
        filters = 20
    layer = Layer(size=6, planes=16, filters=filters, kernel=3, pad=1)
    maps, weights, bias = arrays(layer, 3)
    built = coop(layer, on, weights, bias, 2) if mode == "coop" else indp(layer, on, weights, bias)
    judgement = judge(built.code, _runner(built, layer, on, maps))
    assert not judgement.of(Fate.WRONG) and not judgement.of(Fate.TRAPPED), str(judgement)
    assert len(judgement.of(Fate.CAUGHT)) >= len(judgement.fates) / 2, str(judgement)
    caught = {mutant.row for mutant in judgement.of(Fate.CAUGHT)}
    if mode == "indp":
        # One wait for the loads, one before the first store; the next stores find it done.
        assert len(caught) == 2, str(judgement)


def test_what_mutants_there_are() -> None:
    code = words("sync load, 3\nmovi r1, 2\nsync all, 0\nsync clusters, 0\nsync end, 0\n")
    texts = [(mutant.row, mutant.after) for mutant in mutants(code)]
    one = ["sync vector, 0", "sync load, 0", "sync store, 0"]
    never = "sync vector, 255"
    assert texts == [
        (0, never), (0, "sync load, 4"),
        *((2, text) for text in (never, *one)),
        *((3, text) for text in (never, "sync all, 0", *one)),
    ]  # fmt: skip
    for mutant in mutants(code):
        assert (mutant.code != code).sum() == 1 and mutant.code[mutant.row] != code[mutant.row]


def test_fates() -> None:
    """A mutant of each kind of end: cluster 0 is changed, cluster 1 meets it at a barrier."""
    waits = load("mbuf", 0, 0, 64) + "sync load, 0\n"
    copy = sets(out=64) + "mac scale, result, r0, r0, 64\nsync all, 0\n"
    copy += store(ACTIVATIONS, 64, 64)
    meet = "sync clusters, 0\n" + END
    blind = False

    def ran(code: np.ndarray) -> Ran:
        on = machine("snowflake-2cc")
        base = on.dram.base_address
        segments = [Segment(base, ACTIVATIONS, False), Segment(base + ACTIVATIONS, 4096, True)]
        found = SnowflakeSimulator(on, [code, words(meet)], segments, ACTIVATIONS + 4096)
        found.write(base, np.arange(64, dtype=np.int16))
        found.run()
        return Ran(found.dram[ACTIVATIONS:].copy(), () if blind else found.hazards)

    code = words(waits + copy + meet)
    judgement = judge(code, ran)
    assert {str(mutant) for mutant in judgement.of(Fate.TRAPPED)} == {
        str(mutant) for mutant in mutants(code) if mutant.before == "sync clusters, 0"
    }
    assert [mutant.before for mutant in judgement.of(Fate.CAUGHT)] == [
        "sync load, 0", "sync load, 0", *["sync all, 0"] * 3,
    ]  # fmt: skip
    # All other units have nothing to do when the trace is complete.
    assert [mutant.after for mutant in judgement.of(Fate.SURVIVOR)] == ["sync vector, 0"]
    blind = True
    assert len(judge(code, ran).of(Fate.WRONG)) == 5
    assert Fate.SURVIVOR.value in str(judgement)


@pytest.mark.parametrize(("at", "row"), [(0, None), (100, 7), (200, 11)])
def test_a_sync_forgets_the_first_of_three_loads(at: int, row: int | None) -> None:
    text = "".join(load("mbuf", 0, place, 64, 1) for place in (0, 100, 200))
    text += sets(r1=at, out=900) + "sync load, 2\nmac scale, result, r1, r1, 64\n" + END
    found = simulator(text, machine("snowflake-1cu"), np.zeros(64, np.int16))
    found.run()
    assert [one.earlier.index for one in found.hazards] == ([] if row is None else [row])
