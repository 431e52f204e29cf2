"""Xnmp programs at random that wait as they must: cores with work of their own, barriers between
phases, data that one core brings to all. Of machines with one core also such that are wrong."""

from __future__ import annotations

import random
from functools import lru_cache

from tests.sim.nmp.programs import BASE, EXIT, dma, mac, signal, small_machine, wait
from tests.sim.nmp.rv32im_model import BRANCH, IMMEDIATE, LOAD, REGISTER, STORE
from tvm_npu.sim.nmp.machine import NmpMachine

MEMORY_BYTES, BIAS_BYTES = 512, 2304
INPUTS = BASE + 0x2_0000
INPUT_BYTES = 0x1000
OWN_BYTES = 0x400
OWN = INPUTS + INPUT_BYTES
DRAM_BYTES = 0x2_0000 + INPUT_BYTES + 8 * OWN_BYTES

_EDGES = (-1, 0, 1, 2, 3, 5, 48, 511, 512, 513, 1 << 20, 1 << 28, (1 << 31) - 1, -(1 << 31))
_CLIPS = ((-32768, 32767), (-128, 127), (0, 90), (5, -5), (200, 999), (-999, -200))


@lru_cache(maxsize=1)
def machines() -> tuple[NmpMachine, ...]:
    small = {"mb0_bytes": MEMORY_BYTES, "mb1_bytes": MEMORY_BYTES, "mb2_bytes": MEMORY_BYTES,
             "bias_bytes": BIAS_BYTES}  # fmt: skip
    slow = {"setup_cycles": 400}
    tensor, scale = {"requantization": "tensor"}, {"requantization": "scale"}
    return (
        small_machine(1, 1, memories=small),
        small_machine(1, 1, memories=small, mac=tensor),
        small_machine(1, 1, memories=small | {"ports": 2}, mac=slow, dme=slow),
        small_machine(1, 2, memories=small),
        small_machine(1, 2, memories=small, mac=scale),
        small_machine(2, 2, memories=small | {"ports": 2}),
    )


class Writer:
    """The text of one core's program. ``wrong``: how often a value is one that nobody would set;
    ``careless``: how often a wait is left out."""

    def __init__(
        self, rng: random.Random, machine: NmpMachine, core: int, kind: str, wrong: float,
        careless: float,
    ) -> None:  # fmt: skip
        self.rng, self.machine, self.core, self.kind = rng, machine, core, kind
        self.wrong, self.careless = wrong, careless
        self.lines: list[str] = []
        self.owed: list[int] = []  # semaphores of operations that nobody has waited for
        self.own = OWN + core * OWN_BYTES
        self.memories = [MEMORY_BYTES, MEMORY_BYTES, MEMORY_BYTES, BIAS_BYTES]

    def any(self, *values: int) -> int:
        if self.rng.random() < self.wrong:
            return self.rng.choice((*_EDGES, self.rng.randrange(-(1 << 31), 1 << 31)))
        return self.rng.choice(values)

    def room(self, memory: int, elements: int, size: int, unit: int = 1) -> int:
        """Where so many elements begin, in elements of ``unit`` bytes."""
        free = self.memories[memory] // size - elements
        return self.any(unit * self.rng.randint(0, max(0, free)))

    def settle(self) -> None:
        for sem in self.owed:
            if self.rng.random() >= self.careless:
                self.lines.append(wait(sem))
        self.owed.clear()

    def transfer(self, text: str, sem: int) -> None:
        self.lines.append(text)
        if sem:
            self.owed.append(sem)
        self.settle()

    # Operations of the MAC unit.

    def operate(self) -> None:
        choices = [self.convolution, self.perceptron, self.pool, self.vector, self.activation]
        registers, name = self.rng.choice(choices)()
        sem = self.rng.randint(0, 3)
        self.lines.append(mac(**{key: self.any(value) for key, value in registers.items()}))
        mnemonic, _, sub = name.partition(" ")
        self.lines.append(f"{mnemonic} {sem}{', ' if sub else ''}{sub}\n")
        if sem:
            self.owed.append(sem)
        else:  # nothing tells when it ends but another operation
            self.lines.append(mac(OUT_CHANNELS=1, OUT_ROWS=1, OUT_COLUMNS=1, OUT_ADDRESS=0,
                                  SHIFT=0, LOW=-32768, HIGH=32767, ELEMENT_BYTES=2))  # fmt: skip
            self.lines.append("nmp_activation 4\n")
            self.owed.append(4)
        if self.rng.random() < 0.7:
            self.settle()

    def _window(self) -> dict[str, int]:
        rng = self.rng
        found = {"ELEMENT_BYTES": rng.choice((1, 2, 2))}
        for axis in ("ROWS", "COLUMNS"):
            out, kernel, stride = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 2)
            dilation = rng.choice((1, 1, 2))
            reach = (out - 1) * stride + (kernel - 1) * dilation + 1
            found |= {f"OUT_{axis}": out, f"IN_{axis}": reach + rng.randint(0, 1)}
            found |= {f"KERNEL_{axis}": kernel, f"STRIDE_{axis}": stride}
            found[f"DILATION_{axis}"] = dilation
        return found

    def _tile(self, found: dict[str, int], elements: int, out: int) -> None:
        size = found["ELEMENT_BYTES"]
        found["IN_ADDRESS"] = self.room(0, elements, size, size)
        found["OUT_ADDRESS"] = self.room(2, out, size)

    def _filters(self, found: dict[str, int], depth: int) -> str:
        """Registers for filters; what an operation adds to."""
        size, filters = found["ELEMENT_BYTES"], found["OUT_CHANNELS"]
        found["W_PITCH"] = depth + self.rng.randint(0, 2)
        span = (filters - 1) * found["W_PITCH"] + depth
        found["W_ADDRESS"] = self.room(1, span, size, size)
        found["BIAS_ADDRESS"] = self.room(3, filters, 4)
        return self.rng.choice(("keep", "zero", "bias", *self.forms("filter")))

    def forms(self, *of_filters: str) -> tuple[str, ...]:
        """What needs filter words: where the machine has them, and now and then elsewhere."""
        has = self.machine.mac.requantization != "tensor" or self.rng.random() < self.wrong
        return of_filters if has else ()

    def multiplies(self, found: dict[str, int]) -> bool:
        """Whether an operation takes a form for quantized models, whose elements are of int8."""
        has = self.machine.mac.requantization == "scale" or self.rng.random() < self.wrong / 4
        if not has or self.rng.random() < 0.5:
            return False
        found["ELEMENT_BYTES"] = 1
        return True

    def convolution(self) -> tuple[dict[str, int], str]:
        found, rng = self._window(), self.rng
        zero = self.multiplies(found)
        groups, channels = rng.choice((1, 1, 2)), rng.randint(1, 3)
        found |= {"GROUPS": groups, "IN_CHANNELS": channels,
                  "OUT_CHANNELS": groups * rng.randint(1, 3)}  # fmt: skip
        out = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        self._tile(found, groups * channels * found["IN_ROWS"] * found["IN_COLUMNS"], out)
        sub = self._filters(found, channels * found["KERNEL_ROWS"] * found["KERNEL_COLUMNS"])
        found |= {"SHIFT_B": rng.randint(-128, 127)} if zero else {}
        return found, f"nmp_conv2d{'z' if zero else ''} {sub}"

    def perceptron(self) -> tuple[dict[str, int], str]:
        rng = self.rng
        found = {"ELEMENT_BYTES": rng.randint(1, 2), "IN_CHANNELS": rng.randint(1, 20),
                 "OUT_CHANNELS": rng.randint(1, 5)}  # fmt: skip
        zero = self.multiplies(found)
        self._tile(found, found["IN_CHANNELS"], found["OUT_CHANNELS"])
        found |= {"SHIFT_B": rng.randint(-128, 127)} if zero else {}
        sub = self._filters(found, found["IN_CHANNELS"])
        return found, f"nmp_percept{'z' if zero else ''} {sub}"

    def pool(self) -> tuple[dict[str, int], str]:
        found, rng = self._window(), self.rng
        kinds = ("average_away",) if self.multiplies(found) else ("max", "average")
        found |= {"OUT_CHANNELS": rng.randint(1, 3), "IN_CHANNELS": 1}
        for axis in ("ROW", "COLUMN"):
            reach = (found[f"OUT_{axis}S"] - 1) * found[f"STRIDE_{axis}S"]
            found[f"IN_{axis}S"] = reach + found[f"KERNEL_{axis}S"]
            found[f"DILATION_{axis}S"] = 1
            found[f"ORIGIN_{axis}"] = rng.choice((0, 0, -1, 5))
            found[f"COUNT_{axis}_BEGIN"] = rng.choice((-9, 0, 0))
            found[f"COUNT_{axis}_END"] = rng.choice((99, 99, 99, 99, 99, 99, 7))
        out = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        elements = found["OUT_CHANNELS"] * found["IN_ROWS"] * found["IN_COLUMNS"]
        self._tile(found, elements, out)
        return found, f"nmp_pool {rng.choice(kinds)}"

    def _elements(self) -> tuple[dict[str, int], int]:
        rng = self.rng
        found = {"ELEMENT_BYTES": rng.randint(1, 2), "OUT_CHANNELS": rng.randint(1, 4),
                 "OUT_ROWS": rng.randint(1, 3), "OUT_COLUMNS": rng.randint(1, 4)}  # fmt: skip
        self.scaled = self.multiplies(found)
        count = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        found["BIAS_ADDRESS"] = self.room(3, found["OUT_CHANNELS"], 4)
        self._tile(found, count, count)
        return found, count

    def vector(self) -> tuple[dict[str, int], str]:
        found, count = self._elements()
        size, rng = found["ELEMENT_BYTES"], self.rng
        found["W_ADDRESS"] = self.room(1, count, size, size)
        if self.scaled:
            found |= {"SHIFT_A": rng.randint(-(1 << 24), 1 << 24), "SHIFT_B": rng.randint(-9, 99),
                      "FACTOR": rng.choice((0, -(1 << 31), 12345))}  # fmt: skip
            return found, rng.choice(("nmp_veop weigh", "nmp_veop weigh_one"))
        found |= {"SHIFT_A": rng.choice((0, 1, 4, 9)), "SHIFT_B": rng.choice((0, 1, 4, 20))}
        by_channel = ("nmp_veopc add", "nmp_veopc multiply", "nmp_veopc subtract",
                      "nmp_veopc maximum")  # fmt: skip
        every = ("nmp_veop copy", "nmp_veop add", "nmp_veop multiply", "nmp_veop accumulate",
                 "nmp_veop subtract", "nmp_veop maximum", *by_channel,
                 *self.forms(*(["nmp_veopf"] if self.kind == "filters" else [])))  # fmt: skip
        return found, rng.choice(every)

    def activation(self) -> tuple[dict[str, int], str]:
        found, _ = self._elements()
        size, rng = found["ELEMENT_BYTES"], self.rng
        low, high = rng.choice(_CLIPS)
        found |= {"SHIFT": rng.choice((-3, 0, 1, 7, 20, 62)), "LOW": low, "HIGH": high}
        if self.scaled:
            word = rng.randrange(1 << 24) << 8 | rng.choice((0, 1, 7, 24, 40, 61))
            found |= {"SHIFT": rng.randint(-128, 127), "TABLE_ADDRESS": self.room(3, 4, 4, 4)}
            found["FACTOR"] = word - (1 << 32 if word >> 31 else 0)
            form = rng.choice(("one", "one_even", "channel", "channel_even"))
            return found, f"nmp_rescale {form}"
        by_filter = self.forms("nmp_activationf", "nmp_activationxf")
        name = rng.choice(("nmp_activation", "nmp_activationx", *by_filter))
        if not name.startswith("nmp_activationx"):
            return found, name
        form = rng.choice(("table", "leaky", *(["prelu"] if self.kind == "slopes" else [])))
        entries = (1025 if size == 2 else 257) if form == "table" else found["OUT_CHANNELS"]
        width = size if form == "table" else 4
        found["TABLE_ADDRESS"] = self.room(3, entries, width, width)
        found["FACTOR"] = rng.randint(0, 15) if form == "table" else rng.randint(-32767, 32767)
        return found, f"{name} {form}"

    # Transfers.

    def move(self) -> None:
        rng = self.rng
        kind = rng.choice(("load", "load", "load", "store", "store", "forward"))
        memory = rng.choice((0, 1, 3)) if kind == "load" else 2
        size, box = rng.choice((1, 2)), rng.random() < 0.5
        outside = self.own if kind == "store" else INPUTS
        room = OWN_BYTES if kind == "store" else INPUT_BYTES
        registers, elements, span = self._box(size) if box else self._segments(size)
        sem = rng.randint(0, 3)
        suffix = "3d" if box else ""
        if kind == "forward":
            at, source = self.room(0, elements, size, size), self.room(2, span // size + 1, size)
            registers |= {"RECEIVER_TLTS": self.any(0), "RECEIVER_TLES": self.any(0)}
            operands, name = (at, source), f"nmp_forward{suffix} {sem}"
        else:
            address = outside + rng.randrange(0, max(1, room - span), 2)
            at = self.room(memory, elements, size, 1 if memory == 2 else size)
            registers |= {"RECEIVER_TLES": self.any(0)}
            operands = self.any(address), at
            name = f"nmp_{kind}{suffix} {sem}, {('mb0', 'mb1', 'mb2', 'bias')[memory]}"
        text = dma(**{key: self.any(value) for key, value in registers.items()})
        text += f"li t4, {operands[0]}\nli t5, {operands[1]}\n{name}, t4, t5\n"
        self.settle()
        if sem == 0:  # those of one engine end one after the other
            text += dma(SEGMENTS=1, SEGMENT_BYTES=2, ELEMENT_BYTES=2, RECEIVER_TLES=0)
            text += f"li t4, {INPUTS}\nli t5, 0\nnmp_load 5, mb0, t4, t5\n"
            sem = 5
        self.transfer(text, sem)

    def _segments(self, size: int) -> tuple[dict[str, int], int, int]:
        rng = self.rng
        count, each = rng.randint(0, 4), size * rng.randint(0, 24)
        stride = size * rng.randint(0, 40)
        registers = {"SEGMENTS": count, "SEGMENT_BYTES": each, "SEGMENT_STRIDE": stride}
        return registers | {"ELEMENT_BYTES": size}, count * each // size, count * stride + each

    def _box(self, size: int) -> tuple[dict[str, int], int, int]:
        rng = self.rng
        found = {"ELEMENT_BYTES": size, "FILL": rng.choice((0, 7, -9, 300))}
        for axis, name in (("CHANNEL", "CHANNELS"), ("ROW", "ROWS"), ("COLUMN", "COLUMNS")):
            found |= {name: rng.randint(0, 5), f"START_{axis}": rng.choice((0, 0, 1, -1, -3)),
                      f"BOX_{name}": rng.randint(0, 4)}  # fmt: skip
        found["ROW_STRIDE"] = size * (found["COLUMNS"] + rng.choice((0, 0, 3)))
        found["CHANNEL_STRIDE"] = found["ROW_STRIDE"] * found["ROWS"] + size * rng.choice((0, 5))
        elements = found["BOX_CHANNELS"] * found["BOX_ROWS"] * found["BOX_COLUMNS"]
        return found, elements, 5 * found["CHANNEL_STRIDE"] + 5 * found["ROW_STRIDE"] + 16

    def multicast(self) -> list[int]:
        """Brings something to cores, itself among them or not; which ones."""
        rng, cores = self.rng, self.machine.cores
        named = rng.randrange(1 << cores.tlts_per_tle)
        tles = rng.randrange(1 << cores.tles)
        registers, elements, span = self._segments(2)
        memory = rng.choice((0, 1, 3))
        at = rng.randint(0, self.memories[memory] // 2 - elements) * 2
        self.settle()
        text = dma(**registers, RECEIVER_TLTS=named, RECEIVER_TLES=tles)
        text += f"li t4, {INPUTS + rng.randrange(0, INPUT_BYTES - span, 2)}\nli t5, {at}\n"
        self.lines.append(text + f"nmp_mload 6, {('mb0', 'mb1', '', 'bias')[memory]}, t4, t5\n")
        named = named or (1 << cores.tlts_per_tle) - 1
        tles = tles or 1 << self.core // cores.tlts_per_tle
        every = range(self.machine.core_count)
        return [k for k in every if tles >> k // cores.tlts_per_tle & 1
                and named >> k % cores.tlts_per_tle & 1]  # fmt: skip

    # Scalar code.

    def compute(self, label: str) -> None:
        """Arithmetic, accesses and a loop on registers that nothing else uses."""
        rng = self.rng
        self.settle()
        self.lines.append(f"li t3, {rng.randint(1, 5)}\n{label}:\n")
        self.lines += scalar(rng, rng.randint(3, 12), self.own if self.careless == 0 else INPUTS)
        self.lines.append(f"addi t3, t3, -1\nbnez t3, {label}\n")
        if rng.random() < 8 * self.wrong:
            at = rng.randint(0, 9)
            wrong = "ebreak\n", "ecall\n", f"jalr x0, {at}(x0)\n", f"lw x5, {at}(x0)\n"
            self.lines.append(rng.choice(wrong))


_FREE = [f"x{number}" for number in (5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16)]


def scalar(rng: random.Random, count: int, data: int) -> list[str]:
    """Straight code with accesses to ``data`` and to MB1's and the bias buffer's windows."""
    lines = []
    for _ in range(count):
        rd, a, b = (rng.choice((*_FREE, "x0")) for _ in range(3))
        kind = rng.choice(("register", "register", "immediate", "load", "store", "branch", "li"))
        if kind == "register":
            lines.append(f"{rng.choice(list(REGISTER))} {rd}, {a}, {b}\n")
        elif kind == "immediate":
            name = rng.choice(list(IMMEDIATE))
            value = rng.randrange(32) if name in ("slli", "srli", "srai") else (
                rng.randrange(-2048, 2048))  # fmt: skip
            lines.append(f"{name} {rd}, {a}, {value}\n")
        elif kind in ("load", "store"):
            name = rng.choice(list(LOAD if kind == "load" else STORE))
            size = LOAD[name][0] if kind == "load" else STORE[name]
            begin = rng.choice((data, data, 0x1800_0000, 0x2000_0000, 0x1000_0000))
            at = begin + rng.randrange(0, MEMORY_BYTES, size)
            low = ((at + 2048) & 0xFFF) - 2048
            lines.append(f"li t4, {at - low}\n{name} {a}, {low}(t4)\n")
        elif kind == "branch":
            lines.append(f"{rng.choice(list(BRANCH))} {a}, {b}, 8\naddi {rd}, {rd}, 77\n")
        else:
            lines.append(f"li {rd}, {rng.randrange(-(1 << 31), 1 << 31)}\n")
    return lines


def scalar_program(rng: random.Random) -> str:
    """RV32IM alone: blocks that run into each other, loop, and call a function."""
    blocks = rng.randint(2, 6)
    lines = ["li t3, 0\nli s10, 0\n"]
    for k in range(blocks):
        lines.append(f"li s10, {rng.randint(1, 4)}\nblock_{k}:\n")
        lines += scalar(rng, rng.randint(2, 15), OWN)
        target = rng.randint(k + 1, blocks)
        lines.append(rng.choice((
            f"addi s10, s10, -1\nbnez s10, block_{k}\n", f"j block_{target}\n",
            "call function\n", f"auipc t4, 0\naddi t4, t4, {rng.choice((16, 16, 16, 16, 17, 18))}\n"
            "jalr t5, 0(t4)\naddi x5, x5, 3\n",
        )))  # fmt: skip
    lines.append(f"block_{blocks}:\n" + EXIT + "function:\n")
    return "".join([*lines, *scalar(rng, 5, OWN), "addi t3, t3, 1\nret\n"])


KINDS = ("any", "slopes", "filters")


def inputs(rng: random.Random, kind: str) -> bytes:
    """Bytes at random, or words that are slopes, or words of filters."""
    count = INPUT_BYTES // 4
    if kind == "any":
        return rng.randbytes(INPUT_BYTES)
    if kind == "slopes":
        words = [rng.randint(-32767, 32767) for _ in range(count)]
    else:
        words = [rng.randrange(10) << 26 | rng.getrandbits(26) for _ in range(count)]
    return b"".join(word.to_bytes(4, "little", signed=True) for word in words)


def program(rng: random.Random) -> tuple[NmpMachine, str, bytes]:
    """A machine, assembly for all of its cores, and their inputs."""
    kind = rng.choice(KINDS)
    machine = rng.choice(machines())
    alone = machine.core_count == 1
    wrong = rng.choice((0, 0.004, 0.02)) if alone else 0.0
    careless = rng.choice((0, 0, 0, 0.3)) if alone else 0.0
    writers = [Writer(rng, machine, k, kind, wrong, careless) for k in range(machine.core_count)]
    for phase in range(rng.randint(1, 3)):
        for writer in writers:
            fill = rng.sample((0, 1, 3), 3) if phase == 0 else ()
            for memory in fill:
                _fill(writer, memory)
            for number in range(rng.randint(1, 5)):
                choice = rng.random()
                if choice < 0.55:
                    writer.operate()
                elif choice < 0.85:
                    writer.move()
                elif careless == 0:
                    writer.compute(f"loop_{writer.core}_{phase}_{number}")
            writer.settle()
        if not alone:
            _meet(rng, writers)
    text = "".join(
        f"li t0, {writer.core}\nbeq a0, t0, begin_{writer.core}\nj end_{writer.core}\n"
        f"begin_{writer.core}:\n"
        + "".join(writer.lines) + EXIT + f"end_{writer.core}:\n"
        for writer in writers
    )  # fmt: skip
    return machine, text + "ebreak\n", inputs(rng, kind)


def _fill(writer: Writer, memory: int) -> None:
    size = writer.memories[memory]
    name = ("mb0", "mb1", "", "bias")[memory]
    at = INPUTS + writer.rng.randrange(0, INPUT_BYTES - size, 2)
    text = dma(SEGMENTS=1, SEGMENT_BYTES=size, ELEMENT_BYTES=1, RECEIVER_TLES=0)
    writer.transfer(text + f"li t4, {at}\nli t5, 0\nnmp_load 7, {name}, t4, t5\n", 7)


def _meet(rng: random.Random, writers: list[Writer]) -> None:
    """All wait for all; one brings something to some, and all wait again."""
    for step in range(2):
        for writer in writers:
            writer.lines.append(signal(1, 1, "global"))
            if writer.core == 0:
                writer.lines.append(wait(1, len(writers), "global"))
                writer.lines.append("li t6, 1\nnmp_release global, 8, t6\n")
            writer.lines.append(wait(8))
        if step == 0:
            for receiver in rng.choice(writers).multicast():
                writers[receiver].lines.append(wait(6))
