"""ONNX's shape inference, asked in a process of its own (`shape_process`).

It is native code that trusts a model: a convolution without a kernel, a OneHot without axes or a
DepthToSpace by zero end the process that asks.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tvm_npu.door import shape_process
from tvm_npu.errors import PartitionError
from tvm_npu.sim.locks import ForkedLock

MOST_SECONDS = 60
"""Of silence: it takes milliseconds for the largest models."""


_BOOT = (
    "import sys; sys.path[:] = {path}; from tvm_npu.door.shape_process import main; main()"
)


class ShapeInferenceError(Exception):
    """ONNX says that there is something wrong."""


class _Asked:
    """The process, which begins with the first question and ends with this one."""

    def __init__(self) -> None:
        self._lock = ForkedLock()
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """Ends the process."""
        with self._lock():
            if self._process is not None:
                assert self._process.stdin is not None
                self._process.stdin.close()
                self._end()

    def ask(self, where: str, parts: Sequence[bytes]) -> list[bytes]:
        """The answer's parts. PartitionError, which begins with ``where``, where there is none;
        ShapeInferenceError where ONNX finds a fault."""
        with self._lock():
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                shape_process.write_parts(process.stdin, parts)
                ready = select.select([process.stdout], [], [], MOST_SECONDS)[0]
                answer = shape_process.read_parts(process.stdout) if ready else None
            except BrokenPipeError:
                answer = None
            except BaseException:  # an interrupt: what comes belongs to no later question
                self._end()
                raise
            if answer is None:
                raise PartitionError(f"{where}: {self._end()}")
        if answer[0] == shape_process.ERROR:
            raise ShapeInferenceError(answer[1].decode())
        return answer[1:]

    def _running(self) -> subprocess.Popen[bytes]:
        """To a child that was forked the one of its parent has ended, as it is none of its own."""
        if self._process is None or self._process.poll() is not None:
            boot = _BOOT.format(path=[path or os.getcwd() for path in sys.path])
            self._process = subprocess.Popen(
                [sys.executable, "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True,  # Ctrl-C is not for it
            )
        return self._process

    def _end(self) -> str:
        """Ends the process, and says how it ended by itself, if it did."""
        process, self._process = self._process, None
        assert process is not None
        try:
            code = process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"ONNX's shape inference does not end within {MOST_SECONDS} s"
        finally:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return (
            f"ONNX's shape inference crashes there ({name}): a node's inputs or attributes do not "
            "fit its operator"
        )


_ASKED = _Asked()
atexit.register(_ASKED.close)


def infer_shapes(model: Any, has_values: bool) -> Any:
    """A copy of an onnx.ModelProto with the shapes that ONNX infers, ``has_values``: also those
    that are computed from other shapes. PartitionError where that crashes."""
    import onnx

    flag = b"1" if has_values else b"0"
    parts = [shape_process.MODEL, flag, model.SerializeToString()]
    return onnx.ModelProto.FromString(_ASKED.ask("the model", parts)[0])


def infer_outputs(
    where: str,
    node: Any,
    opsets: Sequence[Any],
    version: int,
    ir_version: int,
    types: Mapping[str, Any],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The types of a node's tensors, by name. PartitionError where the inference crashes: it begins
    with ``where``. ShapeInferenceError where ONNX cannot tell."""
    import onnx

    about = {
        "op_type": node.op_type, "version": version, "domain": node.domain,
        "ir_version": ir_version, "opsets": len(opsets), "types": list(types),
        "values": list(values),
    }  # fmt: skip
    messages = [one.SerializeToString() for one in (*opsets, *types.values(), *values.values())]
    parts = [shape_process.NODE, json.dumps(about).encode(), node.SerializeToString(), *messages]
    names, *found = _ASKED.ask(where, parts)
    kinds = (onnx.TypeProto.FromString(one) for one in found)
    return dict(zip(json.loads(names), kinds, strict=True))
