"""The command line: ``tvm-npu`` or ``python -m tvm_npu``."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_npu.cli.interrupts import Interrupts
from tvm_npu.ending import end_process

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``argv``; returns the exit code. Without it runs the process's arguments and ends it."""
    with Interrupts(to_the_end=argv is None) as interrupts:
        try:  # what the command line itself needs is imported under Ctrl-C, too
            from tvm_npu.cli.entry import run

            code = run(argv, interrupts)
        except KeyboardInterrupt:
            code = interrupts.say()
    if argv is None:
        end_process(code)
    return code
