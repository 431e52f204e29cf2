"""Processors as LLVM names them: which there are, and which of them this machine can be."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tvm_npu.errors import TargetError
from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.sim.texts import did_you_mean, shown

_WIDE = "64bit"
"""LLVM's name of the feature, on architectures that have 32 bits and 64."""
_WIDE_TRIPLE = "x86_64"
_FEATURE = re.compile(r"[+-][A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_CPU_INFO = Path("/proc/cpuinfo")
_FLAGS = ("flags", "Features")
"""Lines of Linux that have a processor's features, on x86 and ARM."""
_X86 = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sse4a": "sse4a",
    "avx": "avx", "avx2": "avx2", "fma": "fma", "fma4": "fma4", "xop": "xop", "f16c": "f16c",
    "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm", "popcnt": "popcnt", "movbe": "movbe",
    "adx": "adx", "tbm": "tbm", "gfni": "gfni", "vaes": "vaes", "avxvnni": "avx_vnni",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512er": "avx512er", "avx512pf": "avx512pf", "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16",
}  # fmt: skip
_ARM = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "fp16fml": "asimdfhm",
    "rdm": "asimdrdm", "complxnum": "fcma", "jsconv": "jscvt", "lse": "atomics", "crc": "crc32",
    "bf16": "bf16", "i8mm": "i8mm", "sve": "sve", "sve2": "sve2", "sme": "sme",
}  # fmt: skip
_BYTES_AT_ONCE = ("amx-int8", "avx512vnni", "avxvnni")
"""x86's products of bytes, which Relay's TVM calls by types that LLVM has changed since."""
_NEW_TYPES = 22
"""The first LLVM that has other ones."""
_INSTRUCTIONS = {"x86_64": _X86, "aarch64": _ARM}
"""Features that are instructions which compilers take: LLVM's name -> Linux's."""


def host_processor() -> str:
    """This machine's processor, as LLVM calls it: ``mcpu`` of its target."""
    return str(_function("llvm_get_system_cpu")())


def check_processor(mcpu: str, mtriple: str = "") -> None:
    """TargetError unless LLVM can make code for a processor of this name, on this machine or that
    of ``mtriple``, if LLVM has its architecture here. TVM takes any: LLVM makes slow code for a
    name that it does not know, and ends the process for a processor of 32 bits where code is of
    64."""
    host = host_processor()
    architecture = mtriple.partition("-")[0]
    if mtriple and architecture not in map(str, _function("llvm_get_targets")()):
        return
    target = _target(mtriple=mtriple) if mtriple else _target(mcpu=host)
    known = {str(one) for one in _function("llvm_get_cpu_archlist")(target)}
    where = f"the architecture of {shown(mtriple)}" if mtriple else "this machine's architecture"
    own = "" if mtriple else f"; this machine's own is {host!r}"
    if mcpu not in known and (mtriple or mcpu != host):
        raise TargetError(
            f"mcpu {shown(mcpu)} is none of the {len(known)} processors that LLVM knows of "
            f"{where}{did_you_mean(mcpu, known)}{own}"
        )
    wide = architecture == _WIDE_TRIPLE if mtriple else _WIDE in _features(host)
    if wide and _WIDE not in _features(mcpu, mtriple):
        code = f"code for {shown(mtriple)}" if mtriple else "code for this machine"
        raise TargetError(
            f"mcpu {shown(mcpu)} is a processor of 32 bits; {code} is of 64{own}"
        )


def check_features(mattr: object) -> None:
    """TargetError unless ``mattr`` is a list of features with a sign; for others LLVM ends the
    process."""
    listed = list(mattr) if isinstance(mattr, list | tuple) else None
    for one in [mattr] if listed is None else listed:
        if listed is None or not isinstance(one, str) or not _FEATURE.fullmatch(one):
            raise TargetError(
                f"mattr {shown(one)}; expected a list of features as LLVM names them, each with "
                "'+' or '-' in front, as in ['+avx2']"
            )


def check_runs_here(mcpu: str) -> None:
    """TargetError, too, for a processor with instructions that this machine's lacks: its code would
    end the process that runs it."""
    check_processor(mcpu)
    has = _flags()
    wanted = _features(mcpu)
    architecture = str(_function("llvm_get_system_triple")()).partition("-")[0]
    table = _INSTRUCTIONS.get(architecture, {})
    lacks = [name for name, flag in table.items() if name in wanted and flag not in has]
    if has and lacks:
        raise TargetError(
            f"mcpu {shown(mcpu)} has {', '.join(lacks)}, which this machine's processor, "
            f"{host_processor()!r}, lacks: its code cannot run here"
        )


def unusable_features(mcpu: str, mtriple: str = "") -> list[str]:
    """What of a processor this TVM is not to use, for ``mattr`` of its target: with instructions
    that its LLVM defines in another way than it calls them, LLVM ends the process."""
    if mtriple and not mtriple.startswith(_WIDE_TRIPLE) or not _calls_by_old_types():
        return []
    features = _features(mcpu, mtriple)
    return [f"-{name}" for name in _BYTES_AT_ONCE if name in features]


def _calls_by_old_types() -> bool:
    tvm = import_tvm()
    if find_spec("tvm.relay") is None:
        return False
    release = str(tvm.support.libinfo()["LLVM_VERSION"]).partition(".")[0]
    return release.isdigit() and int(release) >= _NEW_TYPES


def _flags() -> set[str]:
    """This machine's features, as Linux calls them; none where it does not say."""
    try:
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {
        flag
        for line in lines
        if line.startswith(_FLAGS)
        for flag in line.partition(":")[2].split()
    }


def _features(mcpu: str, mtriple: str = "") -> set[str]:
    target = _target(mcpu=mcpu, mtriple=mtriple) if mtriple else _target(mcpu=mcpu)
    return {str(one) for one in _function("llvm_get_cpu_features")(target)}


def _target(**values: str) -> Any:
    return import_tvm().target.Target({"kind": "llvm", **values})


def _function(name: str) -> Any:
    return import_tvm().get_global_func(f"target.{name}")
