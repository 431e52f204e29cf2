"""tvm-npu: a TVM backend for scratchpad NPUs, with a bit-exact, cycle-level simulator."""

from pathlib import Path as _Path

__version__ = "0.1.0"

_checkout = _Path(__file__).resolve().parent.parent
if (_checkout / "codegen" / "graph.py").is_file() and (_checkout / "pyproject.toml").is_file():
    # Run from a checkout: codegen/, runtime/ and sim/ lie beside this folder.
    __path__.append(str(_checkout))


def target(machine, **options):  # type: ignore[no-untyped-def]
    """A TVM target for a built-in machine or a machine file; see `tvm_npu.targets.make_target`."""
    from tvm_npu.targets import make_target

    return make_target(machine, **options)
