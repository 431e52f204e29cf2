"""The command line: ``tvm-npu`` or ``python -m tvm_npu``."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_npu.cli.interrupts import Interrupts

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``argv`` (default: the process's arguments); returns the exit code."""
    with Interrupts(to_the_end=argv is None) as interrupts:
        try:  # what the command line itself needs is imported under Ctrl-C, too
            from tvm_npu.cli.entry import run

            return run(argv, interrupts)
        except KeyboardInterrupt:
            return interrupts.say()
