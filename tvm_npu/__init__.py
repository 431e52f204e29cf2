"""tvm-npu: a TVM backend for scratchpad NPUs, with a bit-exact, cycle-level simulator."""

from pathlib import Path as _Path

__version__ = "0.1.0"

_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "codegen" / "graph.py").is_file() and (_checkout / "pyproject.toml").is_file():
    # Run from a checkout: codegen/, runtime/ and sim/ lie beside this folder.
    __path__.append(str(_checkout))
