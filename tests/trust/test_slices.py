"""Work is bounded and interrupted: limits trap, slices change nothing, Ctrl-C ends a run."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime.networks import machine as small_nmp
from tests.runtime.networks import network
from tests.sim.tiles.programs import WINDOW, sets
from tests.sim.tiles.test_tile_dma_control import template, zynq
from tests.trust.forged import CHIP, MB, array_machine, fill, program_file
from tvm_npu.codegen.compile import CompileOptions, compile_graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim.compiled import slices
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.traps import Trap

MACHINES: dict[str, Callable[[], object]] = {
    "nmp": small_nmp,
    "tiles": lambda: load_machine("setup-a"),
    "tiles-dma": lambda: load_machine("zynq-7020"),
    "snowflake": lambda: load_machine("snowflake-1cc"),
}


def compiled(kind: str) -> Program:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    return compile_graph(graph, ranges, MACHINES[kind](), CompileOptions(precision="int16"))  # type: ignore[arg-type]


PROGRAMS: dict[str, Program] = {}


@pytest.fixture(params=MACHINES)
def program(request: pytest.FixtureRequest) -> Program:
    kind = request.param
    if kind not in PROGRAMS:
        PROGRAMS[kind] = compiled(kind)
    return PROGRAMS[kind]


def images(program: Program) -> list[np.ndarray]:
    random = np.random.default_rng()
    return [
        random.integers(-2000, 2000, (1, *slot.shape)).astype(np.int16) for slot in program.inputs
    ]


def test_nothing_depends_on_slices(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = Session(program), Session(program)
    inputs = images(program)
    expected = whole.run_fixed(inputs)
    calls = []
    monkeypatch.setattr(slices, "SLICE_WORK", 1)
    monkeypatch.setattr(slices, "SLICE_INSTRUCTIONS", 7)
    for module in ("nmp.engine", "tiles.simulator", "parts.pl330.dmac", "snowflake.state"):
        name = f"tvm_npu.sim.{module}.next_slice"
        monkeypatch.setattr(name, lambda work: (calls.append(1), slices.next_slice(work)))
    for result, want in zip(cut.run_fixed(inputs), expected, strict=True):
        assert np.array_equal(result, want)
    assert cut.statistics == whole.statistics
    assert len(calls) > 10


TRANSFER = {"segments": 32, "segment_bytes": 1, "segment_stride": 2, "element_bytes": 1}
BUSY = {
    "bursts": "nmp_load 0, mb1, t4, t5\n",
    "signals": "nmp_signal global, 1, zero\n",
    "releases": "nmp_release global, 1, zero\n",
    "turns": "lw t3, 0(t4)\n",
}


@pytest.mark.parametrize("text", BUSY.values(), ids=BUSY)
def test_slices_of_many_cores_are_short(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes next, and whom a signal wakes, is looked for among all cores."""
    values = load_machine("nmp-4x8").model_dump()
    values["cores"] |= {"tles": 16, "tlts_per_tle": 32}
    values["memories"] |= {"mb0_bytes": 64, "mb1_bytes": 64, "mb2_bytes": 64, "bias_bytes": 64}
    registers = "".join(f"nmp_dcfgi {name}, {value}\n" for name, value in TRANSFER.items())
    rounds = f"lui t4, 0x80000\nli s0, 30\nagain: {text}addi s0, s0, -1\nbnez s0, again\n"
    code = registers + rounds + "li a0, 0\nli a7, 93\necall\n"
    session = Session(program_file(machine_from_dict(values | {"name": "many"}), code))
    calls = []
    name = "tvm_npu.sim.nmp.engine.next_slice"
    monkeypatch.setattr(name, lambda work: (calls.append(1), slices.next_slice(work)))
    monkeypatch.setattr(slices, "SLICE_WORK", 1 << 14)
    monkeypatch.setattr(slices, "SLICE_INSTRUCTIONS", 1 << 10)
    session.run_fixed([])
    assert session.statistics is not None
    assert len(calls) > 2 * session.statistics.instructions >> 10


def test_slices_end_when_all_instructions_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers go on, and may take long."""
    registers = TRANSFER | {"segments": 2000}
    code = "".join(f"nmp_dcfgi {name}, {value}\n" for name, value in registers.items())
    code += "lui t4, 0x80000\n" + 16 * "nmp_load 0, mb1, t4, zero\n" + "li t5, 1\n"
    data = program_file(small_nmp(1, 1), code + "nmp_wait global, 1, t5\n")
    session = Session(data, limits=Limits(instructions=4 + 1 + 16 + 1 + 1))
    calls = []
    name = "tvm_npu.sim.nmp.engine.next_slice"
    monkeypatch.setattr(name, lambda work: (calls.append(1), slices.next_slice(work)))
    monkeypatch.setattr(slices, "SLICE_WORK", 1 << 12)
    with pytest.raises(Trap):
        session.run_fixed([])
    assert len(calls) > 20


def test_work_is_limited(program: Program) -> None:
    inputs = images(program)
    Session(program, limits=Limits(work=1 << 28)).run_fixed(inputs)
    with pytest.raises(Trap) as caught:
        Session(program, limits=Limits(work=1 << 12)).run_fixed(inputs)
    assert caught.value.beyond_work
    assert "4096" in str(caught.value)


def test_instructions_are_limited(program: Program) -> None:
    inputs = images(program)
    free = Session(program)
    expected = free.run_fixed(inputs)
    assert free.statistics is not None
    needed = free.statistics.instructions
    for budget in (1, needed - 1):
        given: dict[str, Any]
        for given in ({"budget": budget}, {"limits": Limits(instructions=budget)}):
            with pytest.raises(Trap, match=rf"\b{budget} instructions") as caught:
                Session(program, **given).run_fixed(inputs)
            assert caught.value.beyond_instructions
    # Statistics count the core's instructions; those of the DMA controller come on top of them.
    enough = needed if program.machine_description().name != "zynq-7020" else 1000 * needed
    session = Session(program, limits=Limits(instructions=enough))
    for _ in range(2):  # every run has its own
        for result, want in zip(session.run_fixed(inputs), expected, strict=True):
            assert np.array_equal(result, want)


def test_instructions_of_dma_programs_are_limited() -> None:
    with pytest.raises(Trap, match="more than 1000 instructions") as caught:
        Session(endless_dma(), limits=Limits(instructions=1000)).run_fixed([])
    assert caught.value.beyond_instructions


def test_memory_is_limited(program: Program) -> None:
    data = program.to_bytes()
    Session(data, limits=Limits(dram_bytes=1 << 24, host_bytes=1 << 31))
    with pytest.raises(LimitError, match="limit dram_bytes allows 1000"):
        Session(data, limits=Limits(dram_bytes=1000))
    with pytest.raises(LimitError, match="limit host_bytes allows 100000"):
        Session(data, limits=Limits(host_bytes=100_000))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("work=1g", Limits(work=1 << 30)),
        ("work=5, host_bytes=2M,instructions=7k", Limits(5, 7 << 10, None, 2 << 20)),
    ],
)
def test_limits_as_text(text: str, want: Limits) -> None:
    assert Limits.parse(text) == want


@pytest.mark.parametrize("text", ["", "work", "work=0", "work=-1", "speed=3", "work=1x", "a" * 999])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(LimitError):
        Limits.parse(text)


ENDLESS_NMP = "loop: j loop\n"
ENDLESS_SNOWFLAKE = "beq r0, r0, 0\n" + "movi r1, 0\n" * 4


def endless_tiles() -> bytes:
    text = fill("weight", MB) + fill("input", MB) + sets(
        OPERANDS=CHIP, **WINDOW, IN_CHANNELS=256, IN_ROWS=32, IN_COLUMNS=32, OUT_CHANNELS=64,
        OUT_ROWS=32, OUT_COLUMNS=32,
    ) + "tconv zero\n" * 20_000 + "tend\n"  # fmt: skip
    return program_file(array_machine(), text)


def endless_dma() -> bytes:
    """A program of 64 KiB that goes round for minutes."""
    rounds = "dmalp lc0, 256\ndmalp lc1, 256\n" + 250 * "dmanop\n"
    code = template(tail=240 * (rounds + "dmalpend lc1\ndmalpend lc0\n") + "dmawmb")
    registers = sets(MOVED_BYTES=64, EXTENT_BYTES=64, ADDRESS=0, PROGRAM=0)
    return program_file(zynq(), registers + "tgo input, constants, in, 0, load\ntend\n", code)


def long_convolution() -> bytes:
    """One instruction of 1.3e8 products: a single filter, larger than its input."""
    text = fill("weight", MB) + fill("input", MB) + sets(
        OPERANDS=CHIP, **(WINDOW | {"KERNEL_ROWS": 512, "KERNEL_COLUMNS": 1024}), IN_CHANNELS=2,
        IN_ROWS=1, IN_COLUMNS=64, OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=1 << 7, PAD_LEFT=60,
    ) + "tconv zero\ntend\n"  # fmt: skip
    return program_file(array_machine(), text)


ENDLESS: dict[str, Callable[[], bytes]] = {
    "nmp": lambda: program_file(small_nmp(), ENDLESS_NMP),
    "snowflake": lambda: program_file(load_machine("snowflake-1cc"), ENDLESS_SNOWFLAKE),
    "tiles": endless_tiles,
    "tiles-dma": endless_dma,
}


@pytest.fixture
def no_callbacks_of_the_collector() -> Iterator[None]:
    """Hypothesis measures the garbage collector by one. An interrupt that comes there is lost."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.mark.usefixtures("no_callbacks_of_the_collector")
@pytest.mark.parametrize("kind", ENDLESS)
def test_an_interrupt_ends_a_run_soon(kind: str) -> None:
    data = ENDLESS[kind]()
    with pytest.raises(Trap):  # compiles the simulator
        Session(data, limits=Limits(work=1 << 20, instructions=1 << 10)).run_fixed([])
    session = Session(data, limits=Limits(work=1 << 50, instructions=1 << 50))
    sent: list[float] = []

    def interrupt() -> None:
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        session.run_fixed([])
    timer.join()
    assert time.process_time() - sent[0] < 1


def running() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if isinstance(one, slices.RunThread)]


@pytest.mark.usefixtures("no_callbacks_of_the_collector")
def test_an_interrupt_is_heard_within_an_instruction() -> None:
    """And what comes next waits for the instruction, which still writes."""
    data = long_convolution()
    with pytest.raises(Trap):  # compiles the simulator
        Session(data, limits=Limits(work=1 << 20)).run_fixed([])
    session = Session(data)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        session.run_fixed([])
    (thread,) = running()
    timer.join()
    (device,) = session.devices
    assert not thread.over.is_set()
    assert device.dram.size and thread.over.is_set()
    assert isinstance(thread.error, KeyboardInterrupt)
