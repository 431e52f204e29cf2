"""Formulas of sweeps: expressions by a grammar, of names that there are, with numbers at edges."""

from __future__ import annotations

import random

from fuzzing.mutation import changed, edge

FORMULAS = (
    b"cores.tles * 10", b"max(cycles, time_us) / 2", b"ceil(log2(memories.mb0_bytes)) ** 2",
    b"(cycles if macs > 5 else dram_bytes) * element_bytes",
    b"0.5 * dram_bytes + sqrt(abs(-macs)) // 3", b"1 if cores.tles in [1, 2, 8] else 0",
)  # fmt: skip
_NAMES = (
    "cycles", "time_us", "dram_bytes", "macs", "element_bytes", "cores.tles", "memories.mb0_bytes",
    "cores", "memories", "isa", "name", "nothing", "cores.nothing", "cycles.real", "__import__",
)  # fmt: skip
_BINARY = ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "^", "|", "&")
_COMPARED = ("<", "<=", "==", "!=", "in", "not in", "is", "and", "or")
_CALLED = ("min", "max", "abs", "ceil", "floor", "sqrt", "log2", "len", "str")
_ODD = ("'a'", "[]", "()", "{}", "None", "True", "1e999", "-1e308", "1j", "...", "lambda: 1",
        "[cycles for cycles in cores]", "(x := 3)", "f'{cycles}'", "cycles[0]",
        "*cores")  # fmt: skip
_AROUND = (("(", ")"), ("-", ""), ("abs(", ")"), ("1 + (", ")"), ("not ", ""), ("2 ** ", ""),
           ("1 if 1 else ", ""), ("[", "]"))  # fmt: skip


def changed_formula(rng: random.Random, data: bytes) -> bytes:
    """A formula by the grammar, one around the given, or the given with its text changed."""
    choice = rng.random()
    if choice < 0.3:
        return changed(rng, data, 1 << 15)
    inner = data.decode() if choice < 0.5 else _expression(rng, 3)
    if rng.random() < 0.05:  # nested deeply, in one of the ways
        front, back = rng.choice(_AROUND)
        times = rng.choice((20, 90, 200, 1000, 4000))
        return (front * times + inner + back * times).encode()
    if rng.random() < 0.05:
        return rng.choice((" + ", " * ", ", ", " and ", " < ")).join([inner] * 500).encode()
    return f"({inner}) {rng.choice(_BINARY)} ({_expression(rng, 2)})".encode()


def _expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        choice = rng.random()
        if choice < 0.5:
            return rng.choice(_NAMES[:7] if rng.random() < 0.8 else _NAMES)
        return str(edge(rng, 64)) if choice < 0.9 else rng.choice(_ODD)
    one, two = _expression(rng, depth - 1), _expression(rng, depth - 1)
    choice = rng.random()
    if choice < 0.5:
        return f"({one}) {rng.choice(_BINARY)} ({two})"
    if choice < 0.65:
        return f"({one}) {rng.choice(_COMPARED)} ({two})"
    if choice < 0.75:
        return f"({one}) if ({two}) else ({_expression(rng, depth - 1)})"
    if choice < 0.8:
        return f"({one}) in [{two}, {one}]"
    arguments = rng.choice((one, f"{one}, {two}", "", f"[{one}, {two}]"))
    return f"{rng.choice(_CALLED)}({arguments})"
