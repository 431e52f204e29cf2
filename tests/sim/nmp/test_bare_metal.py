"""What a bare-metal program finds around it: console, stack and its guard, code that stays."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.sim.nmp import random_programs
from tests.sim.nmp.interpreter import Interpreter
from tests.sim.nmp.programs import BASE, DRAM_BYTES, EXIT, dma, segments, small_machine, transfer
from tests.sim.nmp.rv32im_model import MASK
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.kinds import ElfLeft, ElfObserver, ElfRun, host_bytes, machine_kind
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.bare_metal import (
    CONSOLE_BYTES,
    GUARD_BYTES,
    HEAP_BYTES,
    STACK_BYTES,
    run_elf,
)
from tvm_npu.sim.nmp.elf import ElfImage, Segment, read_elf
from tvm_npu.sim.nmp.environment import Environment
from tvm_npu.sim.nmp.kind import KIND
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.trace import Trace
from tvm_npu.sim.nmp.traps import TrapCode
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.traps import Trap

MACHINE = small_machine()
DATA = BASE + 0x1000
ROOT = Path(__file__).parents[3]
HELLO = Path(__file__).parent / "data" / "hello.elf"
WRITE = "li a7, 64\necall\n"
LEAVE = "li a7, 93\necall\n"


def image(text: str, data: bytes = b"", writable: bool = False) -> ElfImage:
    """Code at BASE, and a page of data at DATA."""
    words = assemble(text, BASE, isa=NMP_ISA).tobytes()
    code = Segment(BASE, words, len(words), writable)
    return ElfImage(BASE, (code, Segment(DATA, data, 4096)), (code,))


def trapped(found: ElfImage, limits: Limits | None = None) -> Trap:
    with pytest.raises(Trap) as caught:
        run_elf(found, MACHINE, limits or Limits(instructions=200_000))
    return caught.value


def observed(found: ElfImage) -> tuple[ElfRun, bytes]:
    written: list[bytes] = []
    done = run_elf(found, MACHINE, observer=ElfObserver(console=written.append))
    return done, b"".join(written)


def test_the_console() -> None:
    text = rng_text(random.Random(4), 300)
    begin, size = 40, 200
    call = f"li a1, {DATA + begin}\nli a2, {size}\n" + WRITE
    done, written = observed(image(f"li a0, 1\n{call}mv s0, a0\nli a0, 2\n{call}{LEAVE}", text))
    assert written == 2 * text[begin : begin + size]
    assert done.exit_code == done.registers["s0"] == size
    done, written = observed(image(f"li a0, 3\n{call}{LEAVE}", text))
    assert (done.exit_code, written) == (-9, b"")
    for address, count in ((BASE - 4, 8), (DATA, 0x7FFF_FFFF), (DATA, 0xFFFF_FFFF)):
        trap = trapped(image(f"li a0, 1\nli a1, {address}\nli a2, {count}\n" + WRITE))
        assert trap.code == TrapCode.SCALAR_ACCESS and f"{count} bytes at {address:#x}" in str(trap)


@pytest.mark.parametrize("address", [0, BASE - 4, DATA, 0xFFFF_FFFF])
def test_writing_nothing_is_no_access(address: int) -> None:
    """From anywhere, as an empty buffer's address may be NULL."""
    call = f"li a0, 1\nli a1, {address}\nli a2, 0\n{WRITE}"
    done, written = observed(image(f"{call}addi a0, a0, 7\n{LEAVE}", b"x"))
    assert (done.exit_code, written) == (7, b"")


def rng_text(rng: random.Random, size: int) -> bytes:
    return bytes(rng.randrange(32, 127) for _ in range(size))


def test_the_console_keeps_so_much_and_writing_is_work() -> None:
    size = CONSOLE_BYTES * 2 // 3
    call = f"li a0, 1\nli a1, {DATA}\nli a2, {size}\n" + WRITE
    done, written = observed(image(2 * call + EXIT, b"x"))
    assert len(written) < CONSOLE_BYTES + 100
    assert written[CONSOLE_BYTES:].decode().strip().startswith(f"[{2 * size - CONSOLE_BYTES} more")
    trap = trapped(image(2 * call + EXIT, b"x"), Limits(work=2 * size - 1))
    assert trap.code == TrapCode.BUDGET and trap.place.instruction == "ecall"
    run_elf(image(2 * call + EXIT, b"x"), MACHINE, Limits(work=2 * size))


def test_without_a_console_there_is_no_such_call() -> None:
    found = NmpSimulator(MACHINE, assemble(WRITE, BASE, isa=NMP_ISA), BASE, DRAM_BYTES)
    with pytest.raises(Trap, match="a7 = 64; known are 93"):
        found.run(BASE)


def test_what_a_program_wrote_is_seen_where_it_traps() -> None:
    written: list[bytes] = []
    lines: list[str] = []
    left: list[ElfLeft] = []
    text = f"li a0, 1\nli a1, {DATA}\nli a2, 3\n{WRITE}sb a2, 0(a1)\nebreak\n"
    with pytest.raises(Trap, match="ebreak"):
        run_elf(image(text, b"abc"), MACHINE,
                observer=ElfObserver(written.append, lines.extend, 3, (), left.append))  # fmt: skip
    assert written == [b"abc"]
    (found,) = left
    assert found.registers["a1"] == DATA and found.memory(DATA, 4) == b"\x03bc\0"
    assert found.instructions == len(assemble(text, BASE, isa=NMP_ISA))
    assert [line.split()[2] for line in lines] == ["ecall", "sb", "ebreak"]


@pytest.mark.parametrize("store", ["sb", "sh", "sw"])
def test_stores_to_read_only_segments_trap(store: str) -> None:
    """The last instruction's bytes are the code's last; those behind it are nobody's."""
    for offset, traps in ((0, True), (12, True), (16, False)):
        body = f"la t0, first\n{store} t1, {offset}(t0)\nfirst: nop\n{EXIT}"
        found = image(body)
        if not traps:
            assert run_elf(found, MACHINE).exit_code == 0
            continue
        trap = trapped(found)
        assert trap.code == TrapCode.READ_ONLY and trap.place.instruction.startswith(store)
        assert f"{BASE:#x}..{BASE + len(found.segments[0].data):#x}" in str(trap)


def test_transfers_do_not_store_into_code() -> None:
    for address, traps in ((BASE, True), (BASE - 8, None), (DATA, False)):
        text = segments(16) + transfer("nmp_store", 0, "mb2", address) + EXIT
        found = NmpSimulator(MACHINE, assemble(text, BASE, isa=NMP_ISA), BASE, DRAM_BYTES)
        if traps is False:
            found.run(BASE)
            continue
        with pytest.raises(Trap) as caught:
            found.run(BASE)
        assert caught.value.code == (TrapCode.READ_ONLY if traps else TrapCode.DRAM_ACCESS)
    inside = segments(4, 2, 8) + transfer("nmp_store", 0, "mb2", BASE + 8) + EXIT
    assert trapped(image(inside)).code == TrapCode.READ_ONLY


EXECUTE_ONLY = Segment(DATA, b"\x13" * 64, 64, writable=False, readable=False)


def with_segment(text: str, segment: Segment) -> ElfImage:
    """Code at BASE, which is readable, and one segment more."""
    found = image(text)
    return replace(found, segments=(found.segments[0], segment))


@pytest.mark.parametrize(("load", "size"), [("lb", 1), ("lhu", 2), ("lw", 4)])
def test_loads_from_segments_that_are_not_readable_trap(load: str, size: int) -> None:
    """Those beside it load."""
    for address, traps in ((DATA - size, False), (DATA, True), (DATA + 64 - size, True),
                           (DATA + 64, False)):  # fmt: skip
        text = f"li t0, {address}\n{load} t1, 0(t0)\n{EXIT}"
        assert run_elf(with_segment(text, EXECUTE_ONLY._replace(readable=True)), MACHINE)
        found = with_segment(text, EXECUTE_ONLY)
        if not traps:
            assert run_elf(found, MACHINE).exit_code == 0
            continue
        trap = trapped(found)
        assert trap.code == TrapCode.UNREADABLE and trap.place.instruction.startswith(load)
        assert f"load from {address:#x}: the segment at {DATA:#x}..{DATA + 64:#x}" in str(trap)


def test_nothing_else_reads_such_segments() -> None:
    """Transfers and the console; a transfer to such a segment stores."""
    loads = segments(4, 1, 4) + transfer("nmp_load", 0, "mb0", DATA + 60) + EXIT
    assert trapped(with_segment(loads, EXECUTE_ONLY)).code == TrapCode.UNREADABLE
    beside = segments(4, 1, 4) + transfer("nmp_load", 0, "mb0", DATA + 64) + EXIT
    assert run_elf(with_segment(beside, EXECUTE_ONLY), MACHINE).exit_code == 0
    stores = segments(4, 1, 4) + transfer("nmp_store", 0, "mb2", DATA) + EXIT
    open_ = EXECUTE_ONLY._replace(writable=True)
    assert run_elf(with_segment(stores, open_), MACHINE).exit_code == 0
    writes = "li a0, 1\nli a1, {}\nli a2, {}\n" + WRITE + EXIT
    for address, size in ((DATA - 4, 4), (DATA, 0)):
        found = with_segment(writes.format(address, size), EXECUTE_ONLY)
        assert run_elf(found, MACHINE).exit_code == 0
    found = with_segment(writes.format(DATA - 4, 5), EXECUTE_ONLY)
    assert trapped(found).code == TrapCode.UNREADABLE


SWAPS = """
    la t0, {target}
    la t1, other
    lw t2, 0(t1)
    sw t2, 0(t0)
target: li a0, 1
    li a7, 93
    ecall
other: li a0, 2
last: .word 0
"""


def test_an_overwritten_instruction_traps_when_it_is_executed() -> None:
    trap = trapped(image(SWAPS.format(target="target"), writable=True))
    assert trap.code == TrapCode.OVERWRITTEN and "code is read once" in str(trap)
    assert trap.place.address == BASE + 24
    done = run_elf(image(SWAPS.format(target="last"), writable=True), MACHINE)
    assert done.exit_code == 1


STORED = {
    "segments": segments(1, 3, 0x100),
    "box": dma(
        CHANNELS=1, ROWS=4, COLUMNS=4, CHANNEL_STRIDE=0x1000, ROW_STRIDE=0x100, START_CHANNEL=0,
        START_ROW=-1, START_COLUMN=-1, BOX_CHANNELS=1, BOX_ROWS=4, BOX_COLUMNS=3, ELEMENT_BYTES=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("registers", STORED.values(), ids=STORED)
def test_code_between_the_runs_of_a_store_is_as_it_was(registers: str) -> None:
    """Bytes 0x200, 0x300 and 0x400 from the code's begin on are stored to, none in between."""
    begin = registers + transfer("nmp_store", 0, "mb2", BASE + 0x200)
    if "ROWS" in registers:
        begin = begin.replace("nmp_store ", "nmp_store3d ")
    begin += "j there\n"
    room = (0x204 - 4 * len(assemble(begin + "there:", BASE, isa=NMP_ISA))) // 4
    run_elf(image(begin + "nop\n" * room + f"there:{EXIT}", writable=True), MACHINE)
    for line in (0x200, 0x300, 0x400):
        many = (line - 4 * len(assemble(begin + "there:", BASE, isa=NMP_ISA))) // 4
        trap = trapped(image(begin + "nop\n" * many + f"there:{EXIT}", writable=True))
        assert trap.code == TrapCode.OVERWRITTEN and trap.place.address == BASE + line


def test_the_first_segment_that_refuses_is_named() -> None:
    parts = [Segment(DATA + 0x100 * k, b"", 64, True, False) for k in range(20)]
    for k in (0, 7, 19):
        for at, fits in ((-4, True), (0, False), (60, False), (64, True)):
            text = f"li a1, {DATA + 0x100 * k + at}\nlw t0, 0(a1)\n{EXIT}"
            code = Segment(BASE, words := assemble(text, BASE, isa=NMP_ISA).tobytes(), len(words))
            found = ElfImage(BASE, (code, *parts), (code,))
            if fits:
                run_elf(found, MACHINE)
            else:
                text = f"{DATA + 0x100 * k:#x}..{DATA + 0x100 * k + 64:#x}"
                assert text in str(trapped(found))


def test_many_segments_cost_little() -> None:
    """Loads look for one that refuses them."""
    text = f"li a1, {DATA}\nli t1, 200000\nagain:" + "lw t0, 0(a1)\n" * 8
    code = assemble(f"{text}addi t1, t1, -1\nbnez t1, again\n{EXIT}", BASE, isa=NMP_ISA).tobytes()
    first = Segment(BASE, code, len(code), False)
    cpu = []
    for count in (1, 1, 1000):
        parts = [Segment(DATA + 0x100 * (1 + k), b"", 64, True, False) for k in range(count)]
        found = ElfImage(BASE, (first, Segment(DATA, b"", 64), *parts), (first,))
        begin = time.process_time()
        run_elf(found, MACHINE)
        cpu.append(time.process_time() - begin)
    assert cpu[2] < 8 * cpu[1]


def test_the_next_run_reads_overwritten_code() -> None:
    words = assemble(SWAPS.format(target="target"), BASE, isa=NMP_ISA)
    found = NmpSimulator(MACHINE, words, BASE, DRAM_BYTES, environment=Environment(()))
    with pytest.raises(Trap, match="has overwritten"):
        found.run(BASE)
    with pytest.raises(Trap, match="has overwritten"):  # by the same bytes
        found.run(BASE)
    assert found.run(BASE + 24)[1] == [2]


RECURSE = """
    li s0, {depth}
    call down
    li a0, 7
    li a7, 93
    ecall
down: addi sp, sp, -{frame}
    {access}
    addi s0, s0, -1
    beqz s0, up
    sw ra, 4(sp)
    call down
    lw ra, 4(sp)
up: addi sp, sp, {frame}
    ret
"""


@pytest.mark.parametrize("access", ["sw s0, 0(sp)", "lw t0, 0(sp)"])
@pytest.mark.parametrize("frame", [16, 2032])
def test_the_guard_of_the_stack(frame: int, access: str) -> None:
    fits = (STACK_BYTES - 16) // frame
    done = run_elf(image(RECURSE.format(depth=fits, frame=frame, access=access)), MACHINE)
    assert done.exit_code == 7
    too_deep = RECURSE.format(depth=fits + 1, frame=frame, access=access)
    trap = trapped(image(too_deep), Limits(instructions=2_000_000))
    assert trap.code == TrapCode.STACK and trap.place.instruction == access
    assert f"sp is {done.registers['sp'] - frame * (fits + 1):#x}" in str(trap)


def test_the_heap_behind_the_image() -> None:
    end = DATA + 4096 + HEAP_BYTES
    text = "li t0, {}\nli t1, 99\nsw t1, 0(t0)\nlw a0, 0(t0)\n" + LEAVE
    assert run_elf(image(text.format(end - 4)), MACHINE).exit_code == 99
    for address in (end, end + GUARD_BYTES - 4):
        trap = trapped(image(text.format(address)))
        assert trap.code == TrapCode.STACK and f"4 bytes at {address:#x}" in str(trap)
    assert run_elf(image(text.format(end + GUARD_BYTES)), MACHINE).exit_code == 99


def test_the_budget_is_exact() -> None:
    text = "li t0, 5\nagain: addi t0, t0, -1\nbnez t0, again\n" + EXIT
    count = run_elf(image(text), MACHINE).statistics.instructions
    assert count == 1 + 2 * 5 + 3
    assert run_elf(image(text), MACHINE, Limits(instructions=count)).exit_code == 0
    trap = trapped(image(text), Limits(instructions=count - 1))
    assert trap.code == TrapCode.RUNAWAY and trap.place.instruction == "ecall"
    assert f"still running after {count - 1} instructions" in str(trap)


def test_the_budget_of_several_cores_is_exact() -> None:
    machine = small_machine(1, 3)
    found = NmpSimulator(machine, assemble("nop\n" + EXIT, BASE, isa=NMP_ISA), BASE, DRAM_BYTES)
    assert found.run(BASE, budget=12)[1] == [0, 0, 0]
    with pytest.raises(Trap, match="after 11 instructions") as caught:
        found.run(BASE, budget=11)
    assert caught.value.place.instruction == "ecall"


class _Noted(Interpreter):
    """Notes what core 0 does: pc, registers before."""

    def _step(self, core):  # type: ignore[no-untyped-def]
        self.noted.append((core.pc, list(core.x)))
        return super()._step(core)


@pytest.mark.parametrize("seed", range(12))
def test_the_trace_against_the_interpreter(seed: int) -> None:
    """The same instructions in the same order, with the same changes of registers."""
    rng = random.Random(seed)
    code = assemble(random_programs.scalar_program(rng), BASE, isa=NMP_ISA)
    found = NmpSimulator(MACHINE, code, BASE, random_programs.DRAM_BYTES)
    other = _Noted(MACHINE, code.tolist(), BASE, bytearray(found.dram.tobytes()))
    other.noted = []  # type: ignore[attr-defined]
    other.run(20_000)
    if not other.cores[0].done:
        return  # one of the few that trap: nothing to compare with
    states = [*other.noted, (None, list(other.cores[0].x))]  # type: ignore[attr-defined]
    first = rng.randrange(len(states) - 1)
    trace = Trace(first)
    plain = found.run(BASE, cores=1)
    registers = found.registers(0)
    found = NmpSimulator(MACHINE, code, BASE, random_programs.DRAM_BYTES)
    traced = found.run(BASE, cores=1, watch=trace)
    assert traced[0].cycles == plain[0].cycles and found.registers(0) == registers
    assert [step.number for step in trace.steps] == list(range(first + 1, len(states)))
    for step, (pc, before), (_, after) in zip(
        trace.steps, states[first:-1], states[first + 1 :], strict=True
    ):
        assert step.pc == pc
        changed = {k: after[k] & MASK for k in range(32) if after[k] != before[k]}
        assert list(step.changed.values()) == list(changed.values())
        word = int(code[(pc - BASE) // 4])
        mnemonic, operands = NMP_ISA.decode(word)  # type: ignore[misc]
        assert step.instruction.split()[0] == mnemonic.mnemonic
        is_access = mnemonic.mnemonic[0] in "ls" and "imm(rs1)" in mnemonic.syntax
        wanted = (before[operands["rs1"]] + operands["imm"]) & MASK if is_access else None
        assert step.address == wanted


def test_the_shipped_start_files_work() -> None:
    """data/build makes hello.elf of them and of hello.S."""
    assert {path.name for path in KIND.start_files.iterdir()} == {"program.ld", "start.S"}
    found = read_elf(HELLO, MACHINE)
    assert [segment.writable for segment in found.segments] == [False, True]
    done, written = observed(found)
    assert (done.exit_code, written) == (42, b"hello\n")
    text = (KIND.start_files / "start.S").read_text()
    begin = [line for line in text.partition("_start:")[2].splitlines() if ".globl" not in line]
    words = assemble("\n".join([*begin, "main:"]), isa=NMP_ISA)
    assert bytes(found.segments[0].data).startswith(words[:2].tobytes())
    behind_call = bytes(found.segments[0].data[16:])  # linkers know a call of two words
    assert behind_call.startswith(words[3:].tobytes())


_MEASURED = """
from tests.sim.nmp.test_bare_metal import nothing
from tvm_npu.sim.nmp.bare_metal import run_elf
from tvm_npu.sim.nmp.machine import load_nmp_machine


def now(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))


machine = load_nmp_machine("nmp-4x8")
run_elf(nothing(0), machine)
for words in (0, 1 << 22):
    image = nothing(words)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = now("VmRSS")
    assert run_elf(image, machine).exit_code == 0
    print(now("VmHWM") - before)
"""


def nothing(words: int) -> ElfImage:
    """A program that exits, with so many words of code behind that."""
    code = np.full(max(words, 3), NMP_ISA.encode("addi", rd=0, rs1=0, imm=0), np.uint32)
    code[:3] = assemble(EXIT, BASE, isa=NMP_ISA)[:3]
    segment = Segment(BASE, code.tobytes(), code.nbytes, writable=False)
    return ElfImage(BASE, (segment,), (segment,), "nothing.elf")


def needed(image: ElfImage, machine: NmpMachine) -> int:
    """Bytes, as a message says them."""
    with pytest.raises(LimitError, match="^nothing.elf needs .* limit host_bytes allows 1;") as why:
        run_elf(image, machine, Limits(host_bytes=1))
    return int(str(why.value).split()[2])


def test_memory_of_the_host_is_as_much_as_is_said() -> None:
    """Of a small program little, whatever the machine could do; a file of 100 bytes may have 16 MiB
    of code."""
    found = subprocess.run(
        [sys.executable, "-c", _MEASURED], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True,
    )  # fmt: skip
    small, large = map(int, found.stdout.split())
    machine = load_nmp_machine("nmp-4x8")
    assert small < needed(nothing(0), machine) < 8 << 20
    assert 0.7 * large < needed(nothing(1 << 22), machine) < 1.3 * large


def test_limits_are_of_what_is_needed() -> None:
    machine = load_nmp_machine("nmp-4x8")
    large = nothing(1 << 20)
    bound = needed(large, machine)
    assert run_elf(large, machine, Limits(host_bytes=bound)).exit_code == 0
    text = f"^nothing.elf needs {bound} bytes, limit host_bytes allows {bound - 1};"
    with pytest.raises(LimitError, match=text):
        run_elf(large, machine, Limits(host_bytes=bound - 1))


def test_convolutions_take_buffers() -> None:
    """Executables those of one core, programs those of all."""
    machine = load_nmp_machine("nmp-4x8")
    dram_bytes = 1 << 20
    code = np.full(100, NMP_ISA.by_mnemonic["nmp_conv2d"].match, np.uint32)
    simulator = NmpSimulator(machine, code, BASE, dram_bytes)
    buffers = simulator._state.columns.nbytes
    plain = host_bytes(machine, dram_bytes, np.zeros(100, np.uint32))
    assert host_bytes(machine, dram_bytes, code) - plain == buffers
    segment = Segment(BASE, code.tobytes(), code.nbytes, writable=False)
    image = ElfImage(BASE, (segment,), (segment,), "nothing.elf")
    assert needed(image, machine) - needed(nothing(100), machine) == buffers // machine.core_count


def test_code_of_programs_counts_as_memory_of_the_host() -> None:
    """For every kind, also one from outside that says nothing of it."""
    for name in ("nmp-4x8", "snowflake-1cc", "setup-a"):
        machine = load_machine(name)
        columns = len(machine_kind(machine.isa).isa.columns)
        code = host_bytes(machine, 1000, np.zeros(100, np.uint32)) - host_bytes(machine, 1000)
        assert code > 100 * 4 * (columns + 1)
