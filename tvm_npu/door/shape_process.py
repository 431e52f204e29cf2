"""ONNX's shape inference as a process of its own, which answers requests on stdin.

A request is a list of parts, each with its length in front: the kind, then what the kind needs. An
answer likewise: ``ok`` and its parts, or ``error`` and a text. Nothing else of tvm_npu is imported:
it is to start soon.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO

MODEL, NODE = b"model", b"node"
OK, ERROR = b"ok", b"error"


def write_parts(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    stream.write(struct.pack("<I", len(parts)))
    for part in parts:
        stream.write(struct.pack("<Q", len(part)))
        stream.write(part)
    stream.flush()


def read_parts(stream: IO[bytes]) -> list[bytes] | None:
    """None where the stream has ended."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    parts = []
    for _ in range(struct.unpack("<I", head)[0]):
        size = stream.read(8)
        if len(size) < 8:
            return None
        length = struct.unpack("<Q", size)[0]
        part = stream.read(length)
        if len(part) < length:
            return None
        parts.append(part)
    return parts


def _model(has_values: bytes, model: bytes) -> Iterator[bytes]:
    import onnx

    whole = onnx.ModelProto.FromString(model)
    shaped = onnx.shape_inference.infer_shapes(whole, data_prop=has_values == b"1")
    yield shaped.SerializeToString()


def _node(about: bytes, node: bytes, *messages: bytes) -> Iterator[bytes]:
    """``messages``: opset imports, then types, then values of the inputs, as ``about`` counts and
    names them."""
    import onnx

    told = json.loads(about)
    left = iter(messages)
    opsets = [onnx.OperatorSetIdProto.FromString(next(left)) for _ in range(told["opsets"])]
    types = {name: onnx.TypeProto.FromString(next(left)) for name in told["types"]}
    values = {name: onnx.TensorProto.FromString(next(left)) for name in told["values"]}
    schema = onnx.defs.get_schema(told["op_type"], told["version"], told["domain"])
    found = onnx.shape_inference.infer_node_outputs(
        schema, onnx.NodeProto.FromString(node), types, values, opset_imports=opsets,
        ir_version=told["ir_version"],
    )  # fmt: skip
    kept = {
        name: kind for name, kind in found.items()
        if isinstance(kind, onnx.TypeProto) and kind.HasField("tensor_type")
    }  # fmt: skip
    yield json.dumps(list(kept)).encode()
    yield from (kind.SerializeToString() for kind in kept.values())


def main() -> None:
    kinds: dict[bytes, Callable[..., Iterator[bytes]]] = {MODEL: _model, NODE: _node}
    while True:
        request = read_parts(sys.stdin.buffer)
        if request is None:
            return
        try:
            answer = [OK, *kinds[request[0]](*request[1:])]
        except Exception as error:  # ONNX's own errors have no common base
            answer = [ERROR, str(error).encode()]
        write_parts(sys.stdout.buffer, answer)
