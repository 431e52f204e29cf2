"""When commands run: known cases by hand, and any program against a plain account of the rules."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.tiles.programs import (
    CONSTANTS,
    ON_CHIP,
    WINDOW,
    load,
    machine,
    run,
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.tiles import rates
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.traps import Trap

LOAD = 20 + 3  # set-up and one run; then 4 bytes a cycle
OPERANDS = sets(OPERANDS=ON_CHIP)
TAPS = machine(array={"taps_at_once": 4})
CONV = sets(
    **WINDOW, IN_CHANNELS=5, IN_ROWS=3, IN_COLUMNS=3, OUT_CHANNELS=3, OUT_ROWS=2, OUT_COLUMNS=2
)


def cycles(text: str, on: TileMachine | None = None) -> float:
    return run(text, np.zeros(2048, np.int32), on)[1].cycles


def size(text: str) -> int:
    return len(words(text))


def test_words_issue_one_a_cycle() -> None:
    assert cycles("tset fill, 1\n" * 9 + "tend\n") == 10


def test_transfers_follow_each_other() -> None:
    one, two = load("input", 0, 40), load("weight", 0, 80)
    assert cycles(one + "tend\n") == size(one) + LOAD + 10
    assert cycles(one + two + "tend\n") == size(one) + 2 * LOAD + 10 + 20


@pytest.mark.parametrize(
    ("inner", "stride_inner", "outer", "stride_outer", "runs"),
    [
        (1, 0, 1, 0, 1), (4, 8, 1, 0, 1), (4, 12, 1, 0, 4), (4, 8, 3, 32, 1), (4, 8, 3, 40, 3),
        (4, 12, 3, 48, 12), (1, 99, 3, 8, 1), (1, 99, 3, 9, 3), (2, 0, 2, 0, 4),
    ],
)  # fmt: skip
def test_segments_are_contiguous_pieces(
    inner: int, stride_inner: int, outer: int, stride_outer: int, runs: int
) -> None:
    text = sets(RUN_BYTES=8, COUNT_INNER=inner, STRIDE_INNER=stride_inner, COUNT_OUTER=outer)
    text += sets(STRIDE_OUTER=stride_outer) + "tload input, constants, in\n"
    assert cycles(text + "tend\n") == size(text) + 20 + 3 * runs + 2 * inner * outer
    assert rates.contiguous_runs(8, inner, stride_inner, outer, stride_outer) == runs


def test_taps_at_once() -> None:
    """2 channels on 4 PEs leave room for a second tap: 4 taps in two passes, 3 x 2 x 2 outputs on
    2 PEs over filters. More than the room, or than the array's most, trap."""
    text = load("input", 0, 72) + load("weight", 0, 96) + OPERANDS + CONV
    text += sets(IN_CHANNELS=2, KERNEL_ROWS=2, KERNEL_COLUMNS=2)
    one, two = (cycles(text + sets(TAPS_AT_ONCE=n) + "tconv zero\ntend\n", TAPS) for n in (1, 2))
    assert one - two == 2 * 4 * 2
    assert cycles(text + sets(TAPS_AT_ONCE=0) + "tconv zero\ntend\n", TAPS) == one
    for machine_, number in ((TAPS, 3), (machine(), 2)):
        with pytest.raises(Trap, match=f"TAPS_AT_ONCE is {number}; allowed here are 0 to"):
            cycles(text + sets(TAPS_AT_ONCE=number) + "tconv zero\ntend\n", machine_)


def test_a_convolution_waits_for_its_tiles() -> None:
    """2 x 4 PEs over filters and channels: ceil(3 / 2) * ceil(5 / 4) * 2 * 2 iterations."""
    text = load("input", 0, 180) + load("weight", 0, 60)
    first = size(load("input", 0, 180))
    done = first + LOAD + 45 + LOAD + 15
    text += OPERANDS + CONV + "tconv zero\n"
    assert cycles(text + "tend\n") == done + 10 + 16
    # The next load may not overwrite the weights before that, but the input's other end it may.
    assert cycles(text + load("weight", 0, 4) + "tend\n") == done + 26 + LOAD + 1
    assert cycles(text + load("input", 0, 4, 180) + "tend\n") == max(done + 26, done + LOAD + 1)
    assert cycles(text + load("input", 0, 400, 180) + "tend\n") == done + LOAD + 100


@pytest.mark.parametrize(
    ("column", "row", "iterations"),
    [("IC", "OC", 2 * 2 * 2 * 2 * 4), ("OW", "OH", 3 * 5 * 1 * 1 * 4), ("OC", "OW", 60)],
)
def test_mapped_loops_are_divided_and_rounded_up(column: str, row: str, iterations: int) -> None:
    """5 channels, 3 filters, 2 x 2 places, 2 x 2 taps, 4 PEs a row and 2 rows."""
    on = machine(array={"column_mapping": column, "row_mapping": row})
    text = load("input", 0, 400) + load("weight", 0, 480) + OPERANDS + CONV
    text += sets(KERNEL_ROWS=2, KERNEL_COLUMNS=2, GROUPS=1) + "tconv zero\n"
    loads = size(load("input", 0, 400)) + 2 * LOAD + 100 + 120
    if column == "OC":
        iterations = 1 * 5 * 2 * 1 * 4  # filters over 4, columns over 2
    assert cycles(text + "tend\n", on) == loads + 10 + iterations


def test_groups_take_turns() -> None:
    text = load("input", 0, 400) + load("weight", 0, 480) + OPERANDS + CONV
    text += sets(IN_CHANNELS=1, OUT_CHANNELS=6, GROUPS=3) + "tconv zero\n"
    loads = size(load("input", 0, 400)) + 2 * LOAD + 100 + 120
    assert cycles(text + "tend\n") == loads + 10 + 3 * 4


def test_elements_are_divided_by_pes() -> None:
    """15 elements on 8 PEs; pooling counts the elements of the window."""
    text = OPERANDS + sets(OUT_CHANNELS=3, OUT_ROWS=1, OUT_COLUMNS=5) + "tfill\n"
    assert cycles(text + "tend\n") == size(text) + 2
    text = load("input", 0, 84) + OPERANDS + sets(OUT_CHANNELS=3, OUT_ROWS=1, OUT_COLUMNS=5)
    text += sets(IN_CHANNELS=3, IN_ROWS=1, IN_COLUMNS=7, STRIDE_ROWS=1, STRIDE_COLUMNS=1)
    text += sets(KERNEL_ROWS=1, KERNEL_COLUMNS=3, HIGH=9) + "tpool max\n"
    assert cycles(text + "tend\n") == size(load("input", 0, 84)) + LOAD + 21 + 6


def test_double_buffering_hides_transfers() -> None:
    """The same five tiles in one place and in two: with two, loads run under convolutions."""

    def program(places: int) -> str:
        text = OPERANDS + CONV + load("weight", 0, 60)
        for step in range(5):
            at = step % places * 180
            text += load("input", 180 * step, 180, at) + sets(IN_OFFSET=at)
            text += "tconv zero\n" * 3
        return text + "tend\n"

    one, two = cycles(program(1)), cycles(program(2))
    start = size(OPERANDS + CONV + load("weight", 0, 60)) + LOAD + 15
    assert one == start + 5 * (LOAD + 45 + 3 * 26)
    assert two == start + LOAD + 45 + 5 * 3 * 26


def test_layers_busy_and_waiting_cycles() -> None:
    parts = [load("input", 0, 180) + load("weight", 0, 60), OPERANDS + CONV + "tconv zero\n"]
    parts.append("tconv zero\n" + store("output", 0, 48) + "tend\n")
    text = "".join(parts)
    layer_of = np.repeat(np.array([0, 0, 1], np.int32), [size(part) for part in parts])
    found = simulator(text, layer_names=("a", "b"), layer_of=layer_of)
    found.write(CONSTANTS, np.zeros(64, np.int32))
    statistics = found.run()
    a, b = statistics.layers
    loads = size(load("input", 0, 180)) + 2 * LOAD + 60
    assert (a.cycles, b.cycles) == (loads + 26, 26 + LOAD + 12)
    assert statistics.cycles == a.cycles + b.cycles
    assert statistics.time_us == statistics.cycles / 1020
    assert a.busy_cycles("mac") == b.busy_cycles("mac") == (26.0,)
    assert a.busy_cycles("dma") == (2 * LOAD + 60,) and b.busy_cycles("dma") == (LOAD + 12,)
    assert a.wait_cycles("mac") == (loads - size(parts[0] + parts[1]),)
    assert b.wait_cycles("mac") == (0.0,)
    assert a.macs == b.macs == 5 * 3 * 4 and a.bursts == 2
    assert a.mac_utilization == 60 / (a.cycles * 8)
    assert (a.loaded_bytes, b.stored_bytes) == ({"other": 240}, {"out": 48})
    assert (a.instructions, a.code_bytes) == (size(parts[0] + parts[1]), 4 * a.instructions)
    assert statistics.instructions == size(text)


@dataclass(frozen=True)
class Command:
    """A command as the rules see it: byte ranges that it reads and writes, by memory."""

    text: str
    moves: bool
    cycles: float
    reads: tuple[tuple[str, int, int], ...]
    writes: tuple[tuple[str, int, int], ...]


SIZE = 96
places = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda pair: (pair[0], min(pair[1], SIZE - pair[0]))
)
memories = st.sampled_from(["input", "weight", "output"])


@st.composite
def commands(draw: st.DrawFn) -> Command:
    kind = draw(st.sampled_from(["load", "store", "fill", "copy", "add"]))
    memory = draw(memories)
    begin, count = draw(places)
    used = ((memory, begin, begin + count),)
    if kind == "load":
        return Command(load(memory, 0, count, begin), True, LOAD + count / 4, (), used)
    if kind == "store":
        return Command(store(memory, 0, count, begin), True, LOAD + count / 4, used, ())
    numbers = {"input": 0, "weight": 1, "output": 2}
    first, second = draw(memories), draw(memories)
    a, b = draw(st.integers(0, SIZE - count)), draw(st.integers(0, SIZE - count))
    operands = numbers[first] | numbers[second] << 3 | numbers[memory] << 6
    text = sets(OPERANDS=operands, IN_OFFSET=a, W_OFFSET=b, OUT_OFFSET=begin, OUT_COLUMNS=count)
    reads = {"fill": (), "copy": ((first, a, a + count),),
             "add": ((first, a, a + count), (second, b, b + count))}[kind]  # fmt: skip
    text += "tfill\n" if kind == "fill" else f"tvec {kind}\n"
    return Command(text, False, float(-(-count // 8)), reads, used)


def on_one_pe(command: Command) -> Command:
    _, begin, end = command.writes[0]
    return replace(command, cycles=float(end - begin))


def overlap(one: tuple[tuple[str, int, int], ...], two: tuple[tuple[str, int, int], ...]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in one for b in two)


def by_the_rules(prologue: str, program: list[Command], shared: bool) -> float:
    """Cycles until all is done, each command compared with all before it."""

    def seen(ranges: tuple[tuple[str, int, int], ...]) -> tuple[tuple[str, int, int], ...]:
        return tuple(("all" if shared else m, a, b) for m, a, b in ranges)

    issue = float(size(prologue))
    free = {True: issue, False: issue}
    done: list[tuple[Command, float]] = []
    for command in program:
        issue += size(command.text)
        start = max(issue, free[command.moves])
        for earlier, end in done:
            if (
                overlap(seen(command.reads), seen(earlier.writes))
                or overlap(seen(command.writes), seen(earlier.writes))
                or overlap(seen(command.writes), seen(earlier.reads))
            ):
                start = max(start, end)
        free[command.moves] = start + command.cycles
        done.append((command, start + command.cycles))
    return max([issue + 1, *free.values(), *(end for _, end in done)])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(commands(), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_any_program_keeps_the_rules(program: list[Command], shared: bool, slow: bool) -> None:
    """Bytes-exact: ranges overlap by single bytes, on separate memories and on a shared one."""
    changes: dict[str, dict[str, float]] = {"words": {"int8_bytes": 1}}
    if shared:
        changes["memories"] = {"shared_bytes": 128}
    if slow:  # the compute engine is the one behind
        changes["array"] = {"width": 1, "height": 1}
        program = [command if command.moves else on_one_pe(command) for command in program]
    prologue = "".join(load(name, 0, SIZE) for name in ("input", "weight", "output"))
    prologue += sets(OUT_CHANNELS=1, OUT_ROWS=1, LOW=-128, HIGH=127)
    prologue += "tset fill, 0\n" * 300  # all of this is over when the program begins
    text = prologue + "".join(command.text for command in program) + "tend\n"
    assert cycles(text, machine(**changes)) == by_the_rules(prologue, program, shared)


def test_lists_of_live_ranges_grow() -> None:
    """Loads of a byte each, far behind their issue: a command waits for exactly those it needs."""
    on = machine(words={"int8_bytes": 1})
    text = sets(OPERANDS=ON_CHIP, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=1, HIGH=9)
    text += sets(RUN_BYTES=1, COUNT_INNER=1, COUNT_OUTER=1, CHIP_OFFSET=0)
    first = size(text) + 1
    for k in range(1500):
        text += sets(CHIP_OFFSET=2 * k) + "tload input, constants, in\n"
    first += 1  # the first load issues after one more word
    for k in (10, 700, 1499):
        text += sets(IN_OFFSET=2 * k) + "tvec copy\n"
    found = simulator(text + "tend\n", on, layer_names=("a",), layer_of=np.array(
        [-1] * (size(text) - 6) + [0] * 6 + [-1], np.int32))  # fmt: skip
    statistics = found.run()
    assert found._state.spans.shape[1] > 1024
    each = LOAD + 0.25
    assert statistics.cycles == first + 1500 * each + 1
    waits = [first + (k + 1) * each for k in (10, 700, 1499)]
    issued = size(text) - 4
    expected = max(waits[0] - issued, 0)
    free = max(waits[0], issued) + 1
    for wait in waits[1:]:
        issued += 2
        expected += max(wait - max(free, issued), 0)
        free = max(wait, free, issued) + 1
    assert statistics.layers[0].wait_cycles("mac") == (expected,)


def test_work_a_command_does_not_grow_with_the_program() -> None:
    """The lists hold what is in flight, not what has been."""
    text = OPERANDS + CONV + load("weight", 0, 60)
    for step in range(400):
        at = step % 2 * 180
        text += load("input", 0, 180, at) + sets(IN_OFFSET=at) + "tconv zero\n"
    found = simulator(text + "tend\n")
    found.run()
    assert int(found._state.span_count.max()) < 8
