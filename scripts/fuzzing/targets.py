"""What is fuzzed: a name, how a case is made from a seed, and what is done with it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fuzzing.codes import GRAMMARS, program_case
from fuzzing.looks import looks, may_watch
from fuzzing.parsers import PARSERS, parser_case
from tvm_npu.cli.errors import CliError
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.errors import NpuError
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.limits import Limits

TYPED = (SimError, CodegenError, NpuError, RunError, CliError)
"""Bases of all errors that the project raises on purpose."""

LIMITS = Limits(work=1 << 26, instructions=1 << 19, dram_bytes=1 << 28, host_bytes=1 << 30)
WATCHED = LIMITS.lowered(1 << 15)
"""Of runs that stop after every instruction, which take some hundred times as long."""


@dataclass(frozen=True)
class Target:
    """``make`` gives a case; ``run`` raises one of `TYPED` or does what the input says.
    ``compiled``: runs compiled code, so that numba's checks of bounds mean something."""

    name: str
    make: Callable[[random.Random], bytes]
    run: Callable[[bytes], object]
    compiled: bool = False


def simulate(data: bytes) -> None:
    """A program file on its machine, with inputs, options and onlookers that the file decides."""
    digest = hashlib.sha256(data).digest()
    limits = WATCHED if may_watch(digest[2]) else LIMITS
    session = Session(data, timing=digest[0] % 4 > 0, limits=limits)
    values = np.random.default_rng(digest[1])
    inputs = [
        values.integers(-100, 100, (1, *slot.shape)).astype(
            np.int16 if slot.element_bytes == 2 else np.int8
        )
        for slot in session.program.inputs
    ]
    session.run_fixed(inputs, **looks(digest[2], session))


def _targets() -> dict[str, Target]:
    found = [
        Target(f"sim-{name}", partial(program_case, target=name), simulate, compiled=True)
        for name in GRAMMARS
    ]
    found += [
        Target(name, partial(parser_case, name=name), one.read) for name, one in PARSERS.items()
    ]
    return {target.name: target for target in found}


TARGETS = _targets()


def case_of(target: Target, seed: int) -> bytes:
    """The case number ``seed``: always the same."""
    return target.make(random.Random(f"{target.name} {seed}"))


def outcome(target: Target, data: bytes) -> str:
    """``accepted``, ``typed ...`` or ``bad ...``."""
    try:
        target.run(data)
    except TYPED as error:
        try:
            text = str(error)
        except Exception as second:
            return f"bad message: {type(second).__name__}"
        name = getattr(getattr(error, "code", None), "name", "")
        return f"typed {type(error).__name__} {name}".rstrip() if len(text) < 20_000 else (
            f"bad message of {len(text)} characters: {type(error).__name__}"
        )
    except Exception as error:
        return f"bad {type(error).__name__}: {str(error)[:200]}"
    return "accepted"
