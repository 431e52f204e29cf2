"""Snowflake programs at random: clusters with work of their own and phases between barriers, loops,
branches, banks; operations that run beside each other where their words are apart; and now and then
values that nobody would set, waits that are left out, barriers to which not all come, stores of
several clusters to one place between two barriers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tests.sim.snowflake.programs import END, SYNC, machine, sets, words
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

CONSTANT_BYTES, OWN_BYTES = 1 << 13, 1 << 12
PART = 128
"""Words of a buffer that one operand gets while others run."""
_EDGES = (-1, 0, 1, 2, 3, 15, 16, 47, 64, 512, 1023, 2047, 2048, 32767, 40000, 65537, 1 << 20,
          (1 << 31) - 1, -(1 << 31))  # fmt: skip
_ROOM = 500
"""Instructions of a phase, at most: what is left of a bank goes to the next phase."""


@lru_cache(maxsize=1)
def machines() -> tuple[SnowflakeMachine, ...]:
    def small(name: str, count: int, cus: int, raw: int, *depths: int, mbuf: int = 4096,
              wbuf: int = 4096) -> SnowflakeMachine:  # fmt: skip
        sizes = {"count": count, "cus": cus, "mbuf_bytes": mbuf, "wbuf_bytes": wbuf}
        units = dict(zip(("vector", "load", "store"), ({"queue_depth": n} for n in depths),
                         strict=True))  # fmt: skip
        return machine(name, clusters=sizes, control={"raw_cycles": raw}, **units)

    return (
        small("snowflake-1cc", 1, 4, 4, 16, 32, 16),
        small("snowflake-1cu", 1, 1, 0, 2, 1, 3),
        small("snowflake-1cc", 1, 3, 1, 1, 2, 1, mbuf=8192, wbuf=2048),
        small("snowflake-2cc", 2, 2, 4, 4, 3, 2),
        small("snowflake-4cc", 4, 1, 2, 16, 8, 4),
        small("snowflake-2cc", 2, 4, 4, 16, 32, 16, mbuf=4096, wbuf=8192),
    )


@dataclass
class Program:
    machine: SnowflakeMachine
    code: list[np.ndarray]
    constants: np.ndarray
    activations: np.ndarray


class Writer:
    """The text of one cluster's program. ``wrong``: how often a value is one that nobody would set;
    ``careless``: how often operands lie anywhere and a wait is left out."""

    def __init__(
        self, rng: random.Random, on: SnowflakeMachine, cluster: int, wrong: float, careless: float
    ) -> None:
        self.rng, self.on, self.cluster = rng, on, cluster
        self.wrong, self.careless = wrong, careless
        self.cus = (1 << on.clusters.cus) - 1
        self.lines: list[str] = []
        self.labels = 0
        self.own = CONSTANT_BYTES + cluster * OWN_BYTES
        self.free: dict[str, list[int]] = {}
        self.settle()

    def settle(self) -> None:
        """Waits for everything: from here on operands may lie anywhere again."""
        if self.rng.random() >= self.careless:
            self.lines.append(SYNC)
        sizes = self.on.clusters
        ends = {"mbuf": sizes.mbuf_bytes // 2, "wbuf": sizes.wbuf_bytes // 2,
                "own": OWN_BYTES // 2}  # fmt: skip
        for name, end in ends.items():
            self.free[name] = list(range(0, end - PART + 1, PART))
            self.rng.shuffle(self.free[name])

    def any(self, *values: int) -> int:
        if self.rng.random() < self.wrong:
            return self.rng.choice((*_EDGES, self.rng.randrange(-(1 << 31), 1 << 31)))
        return self.rng.choice(values)

    def room(self, memory: str, count: int, step: int = 1) -> int:
        """Where ``count`` words begin that nothing else touches until all is complete."""
        rng = self.rng
        if not self.free[memory]:
            self.settle()
        begin = self.free[memory].pop()
        if rng.random() < self.careless:
            begin = rng.randrange(0, 1024 - PART, PART)
        return self.any(begin + rng.randrange(0, max(1, PART - count + 1), step))

    def sets(self, **values: int) -> None:
        """Sets registers in any order."""
        names = list(values)
        self.rng.shuffle(names)
        self.lines.append(sets(**{name: values[name] for name in names}))

    def operate(self) -> None:
        self.rng.choice((self.sum, self.sum, self.stream, self.vmov, self.load, self.load,
                         self.store))()  # fmt: skip
        choice = self.rng.random()
        if choice < 0.25:
            self.settle()
        elif choice < 0.5:
            what = self.rng.choice(("vector", "load", "store"))
            self.lines.append(f"sync {what}, {self.rng.choice((0, 0, 1, 2))}\n")

    def _results(self, count: int) -> dict[str, int]:
        rng = self.rng
        low, high = rng.choice(((-32768, 32767), (0, 99), (-7, 800)))
        return {
            "shift": self.any(rng.randint(-4, 20)), "out": self.room("mbuf", count),
            "out_step": rng.choice((0, 0, rng.randint(0, 40))), "low": self.any(low),
            "high": self.any(high), "cus": self.any(rng.randint(1, self.cus)),
        }  # fmt: skip

    def _outputs(self, coop: bool) -> dict[str, int]:
        rng, cus = self.rng, self.on.clusters.cus
        return {
            "outputs": self.any(rng.randint(1, 4 * cus if coop else 64)),
            "target": self.any(rng.randint(1, self.cus)),
            "cus": self.any(self.cus, rng.randint(1, self.cus)),
        }

    def sum(self) -> None:
        rng = self.rng
        mode = rng.choice(("coop", "indp", "lane"))
        finish = rng.choice(("keep", "result", "result", "sums"))
        values = self._outputs(mode == "coop")
        finish = finish if values["outputs"] * 3 <= PART or finish != "sums" else "result"
        length = rng.randint(1, 40 if mode == "coop" else 8)
        step = rng.randint(0, 9) if mode == "lane" else rng.choice((0, 500))
        values |= self._results(values["outputs"] * 3 if finish == "sums" else 64) | {
            "sum_shift": self.any(rng.randint(0, 3)), "lane_step": self.any(step),
            "residual_shift": self.any(rng.randint(0, 9)),
            "divisor": self.any(rng.choice((1, 1, 2, 9))),
            "r16": self.room("mbuf", PART - 1 if mode == "lane" else length),
            "r17": self.room("wbuf", *((length, 1) if mode == "coop" else (PART, 16))),
        }  # fmt: skip
        self.sets(**values)
        self.lines.append(f"mac {mode}, {finish}, r16, r17, {length}\n")

    def vmov(self) -> None:
        rng, coop = self.rng, self.rng.random() < 0.5
        what = rng.choice(("bias", "sums", "residual"))
        values = self._outputs(coop)
        if what == "sums":
            values["outputs"] = min(values["outputs"], PART // 3)
        memory = "wbuf" if what == "bias" else "mbuf"
        self.sets(**values, r16=self.room(memory, PART))
        self.lines.append(f"vmov {what}, {'coop' if coop else 'indp'}, r16\n")

    def stream(self) -> None:
        rng, length = self.rng, self.rng.randint(1, PART)
        op = rng.choice(("multiply", "add", "scale", "table", "max"))
        b = self.room("mbuf", length)
        values = self._results(length) | {"r16": self.room("mbuf", length)}
        if op == "table":
            values |= {"table_shift": self.any(rng.randint(-8, 8)),
                       "table_bits": self.any(rng.randint(10, 15))}  # fmt: skip
            b = self.room("wbuf", 65)
        elif op == "add":
            values |= {"shift_a": self.any(rng.randint(0, 9)),
                       "shift_b": self.any(rng.randint(0, 9))}  # fmt: skip
        self.sets(**values, r17=b)
        text = f"r16, r17, {length}\n"
        self.lines.append(f"max {text}" if op == "max" else f"mac {op}, result, {text}")

    def _runs(self, way: str, size: int) -> tuple[int, dict[str, int]]:
        """Words of a run, and registers for runs that take no more than ``size`` words."""
        rng, runs = self.rng, self.rng.choice((1, 1, 2, 3))
        count = rng.randint(1, size // runs)
        gap = size // runs if runs > 1 else rng.randint(0, 99)
        step = rng.choice((count, gap, rng.randint(0, gap)))
        found = {f"{way}_runs": self.any(runs), f"{way}_memory_step": self.any(2 * gap),
                 f"{way}_buffer_step": self.any(step)}  # fmt: skip
        return count, found

    def load(self) -> None:
        rng = self.rng
        count, values = self._runs("ld", PART)
        memory = rng.choice(("mbuf", "wbuf"))
        byte = self._source()
        self.sets(**values, r18=self.any(byte), r19=self.room(memory, PART), r20=self.any(count))
        vmac = rng.choice(("all", "v0", "v1", "v2", "v3"))
        shared = "shared" if self.on.clusters.count == 1 and rng.random() < 0.3 else "own"
        cus = self.any(rng.randint(1, self.cus)) & 15
        self.lines.append(f"ld {memory}, r18, r19, r20, {cus}, {vmac}, {shared}, in\n")

    def _source(self) -> int:
        """Constants, what the cluster stores itself, what another has stored."""
        rng, choice = self.rng, self.rng.random()
        if choice < 0.5:
            return 2 * rng.randint(0, CONSTANT_BYTES // 2 - PART)
        if choice < 0.8 or self.careless == 0:
            return self.own + 2 * self.room("own", PART)
        return CONSTANT_BYTES + 2 * rng.randint(0, self.on.clusters.count * OWN_BYTES // 2 - PART)

    def store(self, byte: int | None = None) -> None:
        """To ``byte`` of memory, or to a place of its own, or to any of the first cluster's."""
        count, values = self._runs("st", PART)
        if byte is None:
            byte = self.own + 2 * self.room("own", PART)
            if self.rng.random() < self.careless:
                byte = CONSTANT_BYTES + self.rng.randrange(0, OWN_BYTES, 64)
        cu = self.any(self.rng.randrange(self.on.clusters.cus)) & 3
        self.sets(**values, r18=self.any(byte), r19=self.room("mbuf", PART), r20=self.any(count))
        self.lines.append(f"tmov r18, r19, r20, {cu}, out\n")

    # The control core.

    def scalars(self, count: int) -> None:
        """Each may read what the one before has written."""
        rng = self.rng
        for _ in range(count):
            d, a, b = (f"r{rng.randint(1, 8)}" for _ in range(3))
            self.lines.append(rng.choice((
                f"add {d}, {a}, {b}\n", f"mul {d}, {a}, {b}\n",
                f"addi out, r11, {rng.randint(0, 900)}\n",
                f"addi {d}, {a}, {rng.randint(-65536, 65535)}\n",
                f"mov {d}, {a}, {rng.randint(-32, 31)}\n",
                f"movi {d}, {rng.randrange(-(1 << 21), 1 << 21)}\n",
            )))  # fmt: skip

    def label(self) -> str:
        self.labels += 1
        return f"here_{self.labels}"

    def branch(self, operands: str, target: str) -> None:
        """With what is in its delay slots: now and then another branch."""
        rng = self.rng
        self.lines.append(f"{operands}, {target}\n")
        for _ in range(4):
            if rng.random() < self.wrong:
                self.lines.append("beq r1, r1, 16\n")
            elif rng.random() < 0.04:
                self.lines.append("mac scale, result, r31, r31, 1\n")
            else:
                self.scalars(1)

    def skip(self) -> None:
        """A branch over scalar instructions, taken or not."""
        rng, there = self.rng, self.label()
        name = rng.choice(("ble", "beq"))
        self.branch(f"{name} r{rng.randint(1, 8)}, r{rng.randint(1, 8)}", there)
        self.scalars(rng.randint(0, 4))
        self.lines.append(f"{there}:\n")

    def loop(self) -> None:
        """Operations whose places are the same in every turn."""
        rng, there = self.rng, self.label()
        self.settle()
        self.lines.append(f"movi r12, {rng.randint(1, 3)}\n{there}:\n")
        for _ in range(rng.randint(1, 2)):
            self.operate()
        self.settle()
        self.lines.append("addi r12, r12, -1\n")
        self.branch("ble r11, r12", there)

    def fill(self) -> None:
        """Something in all buffers."""
        sizes = self.on.clusters
        for memory, size in (("mbuf", sizes.mbuf_bytes // 2), ("wbuf", sizes.wbuf_bytes // 2)):
            byte = 2 * self.rng.randint(0, CONSTANT_BYTES // 2 - size)
            self.lines.append(sets(r18=byte, r19=0, r20=size, r11=1))
            self.lines.append(f"ld {memory}, r18, r19, r20, {self.cus}, all, own, in\n")
        self.settle()

    def phase(self, number: int, shared: int | None) -> None:
        """``shared``: a place that another cluster stores to as well, now and then."""
        if number == 0:
            self.fill()
        for _ in range(self.rng.randint(3, 12)):
            if shared is not None and self.rng.random() < self.careless:
                self.store(shared + self.rng.randrange(0, PART, 64))
            choice = self.rng.random()
            if choice < 0.6:
                self.operate()
            elif choice < 0.75:
                self.loop()
            elif choice < 0.9:
                self.skip()
            else:
                self.scalars(3)


def program(rng: random.Random) -> Program:
    """A machine, words for all of its clusters, what its memory holds."""
    on = rng.choice(machines())
    wrong, careless = rng.choice((0, 0, 0.002, 0.01)), rng.choice((0, 0, 0, 0.1, 0.4))
    writers = [Writer(rng, on, k, wrong, careless) for k in range(on.clusters.count)]
    phases: list[list[str]] = []
    for number in range(rng.randint(1, 3)):
        shared = CONSTANT_BYTES + rng.randrange(0, len(writers) * OWN_BYTES - 4 * PART, 64)
        for writer in writers:
            writer.phase(number, shared if len(writers) > 1 else None)
        meet(rng, writers)
        phases.append(["".join(writer.lines) for writer in writers])
        for writer in writers:
            writer.lines.clear()
    code = [banked([texts[k] for texts in phases]) for k in range(len(writers))]
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 3)):
            one = rng.choice(code)
            one[rng.randrange(len(one))] ^= np.uint32(1 << rng.randrange(32))
    width = rng.randint(1, 15)
    low, high = -(1 << width), (1 << width) - 1
    data = np.array([rng.randint(low, high) for _ in range(CONSTANT_BYTES // 2)], np.int16)
    return Program(on, code, data, np.arange(on.clusters.count * OWN_BYTES // 2, dtype=np.int16))


def meet(rng: random.Random, writers: list[Writer]) -> None:
    """All wait for all, and what one has stored comes to all."""
    alone = rng.choice(writers) if rng.random() < writers[0].wrong else None
    source = rng.choice(writers)
    byte = source.own + 2 * rng.randint(0, OWN_BYTES // 2 - PART)
    shared = rng.random() < 0.5
    for writer in writers:
        if rng.random() < writer.wrong:
            byte += 2
        if writer is not alone and rng.random() >= writer.careless / 4:
            writer.lines.append("sync clusters, 0\n")
        writer.settle()
        writer.sets(r18=byte, r19=writer.room("mbuf", PART), r20=PART, ld_runs=1)
        how = "shared" if shared else "own"
        writer.lines.append(f"ld mbuf, r18, r19, r20, {writer.cus}, all, {how}, in\n")
        writer.settle()
        if writer is not alone:
            writer.lines.append("sync clusters, 0\n")


def banked(texts: list[str]) -> np.ndarray:
    """Code of phases: each loads the next one to the other bank and goes there."""
    bodies = [words(text)[:_ROOM] for text in texts]
    images: list[np.ndarray] = []
    for number, body in enumerate(bodies):
        if number + 1 == len(bodies):
            images.append(np.concatenate([body, words(END)]))
            break
        size = min(512, len(bodies[number + 1]) + (9 if number + 2 < len(bodies) else 1))
        place = (number + 1) % 2 * 512
        load = words(
            sets(r28=4 * (sum(map(len, images)) + len(body) + 9), r29=place, r30=2 * size)
            + "ld icache, r28, r29, r30, 0, all, own, other\n"
        )
        jump = words(f"beq r0, r0, {4 * (512 - 4 - len(body))}\n" + "addi r9, r9, 1\n" * 4)
        images.append(np.concatenate([load, body, jump]))
    return np.concatenate(images)
