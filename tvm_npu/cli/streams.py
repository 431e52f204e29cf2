"""The streams of a command: their readers may leave, and their encodings may lack characters."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class _Leavable(io.FileIO):
    """What is written once its reader has left goes nowhere."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            drop(self.fileno())
            return super().write(data)


def drop(descriptor: int) -> None:
    """What is written to ``descriptor`` from here on goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def open_streams() -> None:
    """Makes ``sys.stdout`` and ``sys.stderr`` those of a command, whose work does not depend on who
    reads what it prints. Python has none where the process was started with a closed one."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))
        elif stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _leavable(stream))


def _leavable(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """On the same descriptor. Characters that the encoding does not have are escaped."""
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Leavable(stream.fileno(), "wb", closefd=False)),
        stream.encoding,
        "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
