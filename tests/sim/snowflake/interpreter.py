"""A second reading of the instruction set: plain Python integers, one instruction after the other,
each complete before the next begins. Written from docs/snowflake.md, not from the simulator."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.snowflake.isa import SNOWFLAKE_ISA

MAPS, WEIGHTS = 32768, 16384


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _clip(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def requantize(value: int, shift: int, low: int, high: int) -> int:
    value = (value + (1 << (shift - 1))) >> shift if shift > 0 else value << -shift
    return _clip(_clip(value, -32768, 32767), low, high)


class Interpreter:
    """One cluster of ``cus`` CUs and the device's memory, int16 words."""

    def __init__(self, cus: int, memory: np.ndarray) -> None:
        self.cus = cus
        self.memory = [int(word) for word in memory]
        self.mbuf = [[0x5A5A] * MAPS for _ in range(cus)]
        self.wbuf = [[[0x5A5A] * WEIGHTS for _ in range(4)] for _ in range(cus)]
        self.r = {f"r{number}": 0 for number in range(32)}
        specials = (
            "out out_step outputs target cus shift low high divisor sum_shift residual_shift "
            "shift_a shift_b lane_step table_shift table_bits ld_runs ld_memory_step "
            "ld_buffer_step st_runs st_memory_step st_buffer_step"
        )
        self.r |= {name: 0 for name in specials.split()}
        self.r |= {"outputs": 64, "target": 1, "cus": (1 << cus) - 1, "divisor": 1}
        self.r |= {"low": -32768, "high": 32767, "ld_runs": 1, "st_runs": 1}
        # By layout and CU, and then by number of the result.
        self.overflow = False  # a sum has left 48 bits
        self.sums: dict[tuple[bool, int], list[int] | None] = {}
        self.initial: dict[tuple[bool, int, int], int] = {}
        self.addend: dict[tuple[bool, int, int], int] = {}
        self.residual: dict[tuple[bool, int, int], int] = {}

    def run(self, words: np.ndarray) -> None:
        """Straight-line code."""
        for word in words.tolist():
            mnemonic, _, operands = disassemble(word, SNOWFLAKE_ISA).partition(" ")
            getattr(self, f"do_{mnemonic}")(*[part.strip() for part in operands.split(",")])

    def set(self, name: str, value: int) -> None:
        self.r[name] = _signed(value, 32)

    def do_movi(self, dest: str, value: str) -> None:
        self.set(dest, int(value, 0))

    def do_mov(self, dest: str, source: str, shift: str) -> None:
        by = int(shift)
        self.set(dest, self.r[source] << by if by >= 0 else self.r[source] >> -by)

    def do_add(self, dest: str, a: str, b: str) -> None:
        self.set(dest, self.r[a] + self.r[b])

    def do_addi(self, dest: str, a: str, value: str) -> None:
        self.set(dest, self.r[a] + int(value, 0))

    def do_mul(self, dest: str, a: str, b: str) -> None:
        self.set(dest, self.r[a] * self.r[b])

    def do_sync(self, *_: str) -> None:
        pass

    def _active(self) -> list[int]:
        return [u for u in range(self.cus) if self.r["cus"] >> u & 1]

    def _numbers(self, coop: bool, u: int) -> range:
        """Numbers of the results that CU u makes."""
        if coop:
            return range(4 * u, min(4 * u + 4, self.r["outputs"]))
        return range(self.r["outputs"])

    def do_vmov(self, what: str, layout: str, a: str) -> None:
        at, coop = self.r[a], layout == "coop"
        lowest = next(u for u in range(self.cus) if not coop or self.r["target"] >> u & 1)
        for u in self._active():
            maps = self.mbuf[lowest if coop else u]
            for i in self._numbers(coop, u):
                key = (coop, u, i)
                if what == "bias":
                    buffer = self.wbuf[u][i % 4] if coop else self.wbuf[u][i // 16]
                    place = at if coop else at + 2 * (i % 16)
                    low, high = buffer[place : place + 2]
                    value = _signed((low & 0xFFFF) + (high << 16), 32)
                    self.initial[key] = self.initial.get(key, 0) + value
                elif what == "sums":
                    parts = [word & 0xFFFF for word in maps[at + 3 * i : at + 3 * i + 3]]
                    value = _signed(parts[0] + (parts[1] << 16) + (parts[2] << 32), 48)
                    self.initial[key] = self.initial.get(key, 0) + value
                else:
                    self.addend[key] = maps[at + i]
                self._watch(self.initial.get(key, 0))

    def _watch(self, value: int) -> None:
        self.overflow |= not -(1 << 47) <= value < 1 << 47

    def do_mac(self, mode: str, finish: str, a: str, b: str, length: str) -> None:
        at, by, steps = self.r[a], self.r[b], int(length, 0)
        if mode in ("multiply", "add", "scale", "table"):
            self._stream(mode, at, by, steps)
            return
        coop = mode == "coop"
        out: dict[int, list[int]] = {}
        active = [u for u in self._active() if len(self._numbers(coop, u))]
        for u in active:
            every = range(4 * u, 4 * u + 4) if coop else range(64)
            if self.sums.get((coop, u)) is None:
                self.sums[coop, u] = [self.initial.pop((coop, u, i), 0) for i in every]
                for i in every:
                    self.residual[coop, u, i] = self.addend.pop((coop, u, i), 0)
            sums = self.sums[coop, u]
            assert sums is not None
            for i in self._numbers(coop, u):
                for t in range(steps):
                    if coop:
                        product = self.mbuf[u][at + t] * self.wbuf[u][i % 4][by + t]
                    else:
                        word = at + t if mode == "indp" else at + t * self.r["lane_step"] + i
                        weight = self.wbuf[u][i // 16][by + 16 * t + i % 16]
                        product = self.mbuf[u][word] * weight
                    sums[i - every.start] += product
                self._watch(sums[i - every.start])
            if finish != "keep":
                values = [sums[i - every.start] for i in self._numbers(coop, u)]
                residuals = [self.residual[coop, u, i] for i in self._numbers(coop, u)]
                out[u] = self._results(finish, values, residuals)
                self.sums[coop, u] = None
        if finish == "keep":
            return
        width = 3 if finish == "sums" else 1
        for u in active:
            targets = [u]
            place = self.r["out"] + (4 * u * width if coop else 0)
            if coop:
                targets = [k for k in range(self.cus) if self.r["target"] >> k & 1]
            for target in targets:
                self.mbuf[target][place : place + len(out[u])] = out[u]
        self.set("out", self.r["out"] + self.r["out_step"])

    def _results(self, finish: str, sums: list[int], residuals: list[int]) -> list[int]:
        if finish == "sums":
            return [_signed(value >> 16 * k, 16) for value in sums for k in range(3)]
        r, found = self.r, []
        for value, residual in zip(sums, residuals, strict=True):
            value = (value << r["sum_shift"]) + (residual << r["residual_shift"])
            n = r["divisor"]
            value = (2 * value + n) // (2 * n) if n > 1 else value
            found.append(requantize(value, r["shift"], r["low"], r["high"]))
        return found

    def _stream(self, mode: str, a: int, b: int, length: int) -> None:
        r = self.r
        for u in self._active():
            maps, made = self.mbuf[u], []
            for i in range(length):
                if mode == "multiply":
                    value = maps[a + i] * maps[b + i]
                elif mode == "add":
                    value = (maps[a + i] << r["shift_a"]) + (maps[b + i] << r["shift_b"])
                else:
                    value = maps[a + i]
                if mode == "table":
                    made.append(self._look_up(self.wbuf[u][i % 4], b, value))
                elif mode == "max":
                    made.append(_clip(max(value, maps[b + i]), r["low"], r["high"]))
                else:
                    made.append(requantize(value, r["shift"], r["low"], r["high"]))
            maps[r["out"] : r["out"] + length] = made
        self.set("out", r["out"] + r["out_step"])

    def _look_up(self, table: list[int], b: int, value: int) -> int:
        bits = self.r["table_bits"]
        x = requantize(value, self.r["table_shift"], -32768, 32767) + 32768
        at, rest = b + x // (1 << bits), x % (1 << bits)
        y = table[at]
        if bits:
            y += ((table[at + 1] - table[at]) * rest + (1 << bits) // 2) >> bits
        return _clip(y, self.r["low"], self.r["high"])

    def do_max(self, a: str, b: str, length: str) -> None:
        self._stream("max", self.r[a], self.r[b], int(length, 0))

    def do_ld(
        self, buffer: str, memory: str, place: str, words: str, cus: str, vmac: str, shared: str,
        stream: str,
    ) -> None:  # fmt: skip
        count, r = self.r[words], self.r
        for k in range(r["ld_runs"]):
            begin = (r[memory] + k * r["ld_memory_step"]) // 2
            data = self.memory[begin : begin + count]
            at = r[place] + k * r["ld_buffer_step"]
            for u in range(self.cus):
                if int(cus) >> u & 1 and buffer == "mbuf":
                    self.mbuf[u][at : at + count] = data
                elif int(cus) >> u & 1:
                    for v in range(4):
                        if vmac in ("all", f"v{v}"):
                            self.wbuf[u][v][at : at + count] = data

    def do_tmov(self, memory: str, place: str, words: str, cu: str, stream: str) -> None:
        count, r = self.r[words], self.r
        for k in range(r["st_runs"]):
            begin = (r[memory] + k * r["st_memory_step"]) // 2
            at = r[place] + k * r["st_buffer_step"]
            self.memory[begin : begin + count] = self.mbuf[int(cu)][at : at + count]
