"""tvm-npu: a TVM backend for scratchpad NPUs, with a bit-exact, cycle-level simulator.

`relay` marks the NPU regions of a model, `runtime` tells what they cost, `models` makes networks to
try. The names below load what they need when they are first used; `import tvm_npu` loads nothing.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tvm

    from tvm_npu import models, relay, runtime
    from tvm_npu.codegen.compile import CompileOptions, compile_graph
    from tvm_npu.codegen.graph import Graph
    from tvm_npu.codegen.passes.calibrate import Ranges
    from tvm_npu.codegen.plan import planner_names
    from tvm_npu.codegen.program.format import Program
    from tvm_npu.comparison import compare
    from tvm_npu.errors import NpuError
    from tvm_npu.report.measure import profile
    from tvm_npu.runtime.session import Session
    from tvm_npu.sim.machine_file import load_machine, machine_names
    from tvm_npu.verification import verify

__version__ = "0.1.0"

__all__ = [
    "CompileOptions",
    "Graph",
    "NpuError",
    "Program",
    "Ranges",
    "Session",
    "compare",
    "compile_graph",
    "load_machine",
    "machine_names",
    "models",
    "planner_names",
    "profile",
    "relay",
    "runtime",
    "target",
    "verify",
]

_MODULE_OF = {
    "CompileOptions": "codegen.compile",
    "Graph": "codegen.graph",
    "NpuError": "errors",
    "Program": "codegen.program.format",
    "Ranges": "codegen.passes.calibrate",
    "Session": "runtime.session",
    "compare": "comparison",
    "compile_graph": "codegen.compile",
    "load_machine": "sim.machine_file",
    "machine_names": "sim.machine_file",
    "planner_names": "codegen.plan",
    "profile": "report.measure",
    "verify": "verification",
}
_PACKAGES = ("models", "relay", "runtime")

_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "codegen").is_dir() and (_checkout / "pyproject.toml").is_file():
    # Run from a checkout: codegen/, runtime/ and sim/ lie beside this folder.
    __path__.append(str(_checkout))


def target(machine: str | Path, **options: Any) -> tvm.target.Target:
    """A TVM target for the built-in machine or machine file ``machine``.

    Options: ``precision``, ``planner``, ``percentile``, ``seed``, ``tuning_log``; further keyword
    arguments (for example ``mcpu``, ``mtriple``) go to TVM's CPU target. Raises TargetError for an
    unknown machine or an option out of its range.
    """
    from tvm_npu.targets import make_target

    return make_target(machine, **options)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"tvm_npu.{name}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f"tvm_npu.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tvm_npu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
