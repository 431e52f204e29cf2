"""The command line: ``tvm-npu`` or ``python -m tvm_npu.cli``."""

from __future__ import annotations

from tvm_npu.cli.entry import main

__all__ = ["main"]
