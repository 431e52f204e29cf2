"""Straight-line programs at random: the simulator against the interpreter."""

from __future__ import annotations

import random

import numpy as np

from tests.sim.snowflake.interpreter import Interpreter
from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    END,
    SYNC,
    load,
    machine,
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.traps import Trap


def compare(seed: int) -> str:
    """``agrees``, ``traps``, or what differs."""
    rng = random.Random(f"snowflake {seed}")
    filled = load("mbuf", 0, 0, 2048) + load("wbuf", 1024, 0, 1024) + SYNC + program(rng)
    low, high = -(1 << rng.randint(1, 15)), 1 << rng.randint(1, 15)
    constants = np.array([rng.randrange(low, high) for _ in range(2048)]).clip(-32768, 32767)
    found = simulator(filled, machine(), constants, size_bytes=1 << 15)
    other = Interpreter(4, found.dram.view(np.int16))
    other.run(words(filled))
    try:
        found.run(timing=rng.random() < 0.7)
    except Trap as trap:
        same = other.overflow and "does not fit 48 bits" in str(trap)
        return f"traps {trap.code.name}" if same else f"differs: {trap}"
    if other.overflow:
        return "differs: no trap; a sum does not fit 48 bits"
    if found.hazards:
        return f"differs: {found.hazards[0]} in a program whose operations are apart"
    same = np.array_equal(found.dram.view(np.int16), np.array(other.memory, np.int16))
    return "agrees" if same else "differs: memory"


CASES = {"snowflake": compare}


def program(rng: random.Random) -> str:
    """Instructions with operands that are allowed; all complete before the next begins."""
    text = ""

    def near() -> int:
        return rng.randint(0, 600)

    for _ in range(rng.randint(3, 12)):
        kind = rng.choice(("sum", "stream", "scalar", "store", "vmov", "load"))
        a, b, c = (rng.randint(0, 15) for _ in range(3))
        values = {f"r{a}": near(), f"r{b}": 16 * rng.randint(0, 40)}
        values["shift"] = rng.randint(-4, 20)
        values["out"], values["out_step"] = near(), rng.randint(0, 99)
        values["low"], values["high"] = rng.choice(((-32768, 32767), (0, 99), (-7, 800)))
        values["cus"], values["target"] = rng.randint(1, 15), rng.randint(1, 15)
        text += sets(**values)
        if kind in ("sum", "vmov"):
            coop = rng.random() < 0.5
            text += sets(
                outputs=rng.randint(1, 16 if coop else 64),
                sum_shift=rng.randint(0, 3), residual_shift=rng.randint(0, 9),
                divisor=rng.choice((1, 1, 2, 9)), lane_step=rng.randint(0, 70),
            )  # fmt: skip
        if kind == "sum":
            mode = "coop" if coop else rng.choice(("indp", "lane"))
            finish = rng.choice(("keep", "result", "result", "sums"))
            text += f"mac {mode}, {finish}, r{a}, r{b}, {rng.randint(1, 40)}\n"
        elif kind == "vmov":
            what = rng.choice(("bias", "sums", "residual"))
            text += f"vmov {what}, {'coop' if coop else 'indp'}, r{a}\n"
        elif kind == "stream":
            text += sets(
                shift_a=rng.randint(0, 9), shift_b=rng.randint(0, 9),
                table_shift=rng.randint(-8, 8), table_bits=rng.randint(8, 15),
            )  # fmt: skip
            length = rng.randint(1, 300)
            op = rng.choice(("multiply", "add", "scale", "table", "max"))
            text += f"max r{a}, r{b}, {length}\n" if op == "max" else (
                f"mac {op}, result, r{a}, r{b}, {length}\n"
            )  # fmt: skip
        elif kind == "scalar":
            shift, value = rng.randint(-32, 31), rng.randint(-65536, 65535)
            text += f"mul r{c}, r{a}, r{b}\nmov r{a}, r{c}, {shift}\naddi r{b}, r{a}, {value}\n"
            text += f"add r{c}, r{b}, r{b}\n"
        elif kind == "load":
            runs, size = rng.randint(1, 4), rng.randint(1, 90)
            text += sets(
                ld_runs=runs, ld_memory_step=2 * rng.randint(0, 100),
                ld_buffer_step=rng.randint(0, 120),
            )  # fmt: skip
            where, vmac = rng.choice(("mbuf", "wbuf")), rng.choice(("all", "v0", "v2", "v3"))
            text += load(where, 2 * near(), near(), size, rng.randint(1, 15), vmac)
        else:
            text += sets(
                st_runs=rng.randint(1, 4), st_memory_step=2 * rng.randint(0, 100),
                st_buffer_step=rng.randint(0, 120),
            )  # fmt: skip
            text += store(ACTIVATIONS + 2 * near(), near(), 50, rng.randint(0, 3))
        text += SYNC
    stores = "".join(
        store(ACTIVATIONS + 8192 + 2048 * cu, 0, 1024, cu) for cu in range(4)
    )
    return text + sets(st_runs=1) + stores + END
