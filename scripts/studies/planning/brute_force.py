"""The TSO paper's search as a compiled C program (`brute_force.c`): what planners are timed
against, and a second opinion on their answers.

The source is compiled once with the system's C compiler, -O2, into the user's cache folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule
from tvm_npu.codegen.nmp.plan.cost import step_cycles
from tvm_npu.codegen.nmp.plan.tso import SPLITS, tle_slices
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine

FLAGS = ("-O2", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")
_SCHEDULES: tuple[Schedule, ...] = ("IS", "OS", "WS")
_REFUSALS = {1: "more than 16 TLEs", 2: "more than 64 kinds of tiles along an axis"}


class BruteForceError(Exception):
    """No brute force here: no compiler, a compiler that fails, or a layer beyond its arrays."""


class _Layer(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "filters", "channels", "groups", "rows", "columns", "in_rows", "in_columns", "kernel",
            "stride_rows", "stride_columns", "span_rows", "span_columns", "padding_rows",
            "padding_columns", "element_bytes", "residual", "dense",
        )
    ]  # fmt: skip


class _Machine(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in (
            "tles", "tlts", "mb0", "mb1", "mb2", "bias", "burst_bytes", "macs_per_cycle",
        )),
        *((name, ctypes.c_double) for name in (
            "setup", "burst", "linear_burst", "bytes_per_cycle", "dram_burst",
            "dram_bytes_per_cycle", "efficiency", "mac_setup", "step",
        )),
    ]  # fmt: skip


class _Best(ctypes.Structure):
    _fields_ = [
        ("time", ctypes.c_double),
        *((name, ctypes.c_int64) for name in (
            "grouped", "row_slices", "filter_slices", "schedule", "tile_m", "tile_n", "tile_r",
            "tile_c", "candidates",
        )),
    ]  # fmt: skip


@dataclass(frozen=True)
class Found:
    """The fastest candidate of a layer and its time; ``plan`` is None where nothing fits."""

    plan: ConvPlan | None
    cycles: float
    candidates: int


class BruteForce:
    """The compiled search."""

    def __init__(self, library: Path) -> None:
        self._search = ctypes.CDLL(str(library)).brute_force
        self._search.restype = ctypes.c_int
        self._search.argtypes = [
            ctypes.POINTER(_Layer), ctypes.POINTER(_Machine), ctypes.POINTER(ctypes.c_int64),
            ctypes.c_int64, ctypes.c_int, ctypes.POINTER(_Best),
        ]  # fmt: skip

    def plan(self, problem: ConvProblem, machine: NmpMachine, exact_edges: bool) -> Found:
        """The best of TSO's space: by `cost.predict`'s time (``exact_edges``), or by the paper's
        estimate (`tso_search`). Ties go to the first in the order of
        the loops."""
        cuts = [
            (split, slices)
            for split in SPLITS
            if (slices := tle_slices(split, machine.cores.tles)) is not None
        ]
        flat = [count for _, slices in cuts for count in slices]
        best = _Best()
        refusal = self._search(
            _layer(problem), _machine(problem, machine), (ctypes.c_int64 * len(flat))(*flat),
            len(cuts), int(exact_edges), best,
        )  # fmt: skip
        if refusal:
            raise BruteForceError(f"brute force: a layer has {_REFUSALS[refusal]}")
        if best.tile_m == 0:
            return Found(None, float("inf"), 0)
        slices = (best.row_slices, best.filter_slices)
        plan = ConvPlan(
            "grouped" if best.grouped else "multicast",
            next(split for split, found in cuts if found == slices),
            *slices, _SCHEDULES[best.schedule], best.tile_m, best.tile_n, best.tile_r,
            best.tile_c, planner="brute-force",
        )  # fmt: skip
        return Found(plan, best.time, best.candidates)


def _layer(problem: ConvProblem) -> _Layer:
    return _Layer(
        problem.filters, problem.channels, problem.groups, problem.rows, problem.columns,
        problem.in_rows, problem.in_columns, problem.kernel[0] * problem.kernel[1],
        *problem.stride, problem.in_tile_rows(1), problem.in_tile_columns(1),
        *problem.padding[:2], problem.element_bytes, problem.has_residual, problem.is_dense,
    )  # fmt: skip


def _machine(problem: ConvProblem, machine: NmpMachine) -> _Machine:
    memories, dme, dram, mac = machine.memories, machine.dme, machine.dram, machine.mac
    return _Machine(
        machine.cores.tles, machine.cores.tlts_per_tle, memories.mb0_bytes, memories.mb1_bytes,
        memories.mb2_bytes, memories.bias_bytes, dram.burst_bytes,
        machine.macs_per_cycle(problem.element_bytes), dme.setup_cycles, dme.burst_cycles,
        dme.linear_cycles, dme.bytes_per_cycle, dram.cas_cycles, dram.bytes_per_cycle,
        mac.efficiency, mac.setup_cycles, step_cycles(machine),
    )  # fmt: skip


def load_brute_force(cache: Path | None = None) -> BruteForce:
    """Compiles the source unless ``cache`` (the user's cache folder) has it already.

    Raises BruteForceError without a C compiler (CC, or one of COMPILERS), or when it fails.
    """
    source = (resources.files(__package__) / "brute_force.c").read_bytes()
    compiler = _compiler()
    identity = hashlib.sha256(repr((compiler, FLAGS)).encode() + source).hexdigest()[:16]
    folder = _cache_folder() if cache is None else cache
    library = folder / f"brute_force-{identity}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not library.exists():
            _compile(compiler, source, library)
        return BruteForce(library)
    except OSError as error:
        raise BruteForceError(f"brute force: cannot use {str(library)!r}: {error}") from error


def _compiler() -> list[str]:
    chosen = shlex.split(os.environ.get("CC", ""))
    for command in [chosen] if chosen else [[name] for name in COMPILERS]:
        if shutil.which(command[0]):
            return command
    wanted = f"CC = {shlex.join(chosen)!r}" if chosen else ", ".join(COMPILERS)
    raise BruteForceError(f"brute force needs a C compiler; not found: {wanted}")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tvm-npu"


def _compile(compiler: list[str], source: bytes, library: Path) -> None:
    """Beside ``library``, then a rename: two runs at a time do not meet a half-written file."""
    with tempfile.TemporaryDirectory(dir=library.parent) as name:
        text, made = Path(name) / "brute_force.c", Path(name) / library.name
        text.write_bytes(source)
        command = [*compiler, *FLAGS, "-o", str(made), str(text)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not made.exists():
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise BruteForceError(f"brute force: {shlex.join(compiler)} failed: {lines[0]}")
        os.replace(made, library)
