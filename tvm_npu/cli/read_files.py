"""Files that a command reads because of what its arguments name: those in a folder, the weights
beside a model, and what a specification of a sweep names."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm_npu.sim.bounded_files import MOST_BYTES
from tvm_npu.sim.texts import MOST_FILE_BYTES

_IN_FOLDERS = (
    ".npy", ".npz", ".png", ".jpg", ".jpeg",
    ".sqlite", ".sqlite-wal", ".sqlite-shm", ".model", ".asked",
)  # fmt: skip
"""Ends of files that are read from folders: samples, stores of sweeps."""


def files_read_for(path: Path, is_log: bool = False) -> Iterator[Path]:
    """``path`` and all files that are read because it is: of the folder of a tuner's log all that
    are in it. What is damaged, or not there, names no others: who reads it will say so."""
    yield from _with_parts(path)
    if is_log:
        yield from (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    for named in _named_by_sweep(path):
        yield from _with_parts(named)


def _with_parts(path: Path) -> Iterator[Path]:
    """And the files in a folder, or beside a model."""
    yield path
    try:
        if os.path.isdir(path):
            names = os.listdir(path)
            yield from (path / name for name in names if name.lower().endswith(_IN_FOLDERS))
        else:
            yield from _weights(path)
    except OSError:
        return


def _weights(path: Path) -> list[Path]:
    """Files of the tensors of an ONNX model that has some outside of it."""
    if not _holds(path, b"location", MOST_BYTES):
        return []
    try:
        import onnx

        model = onnx.load(path, load_external_data=False)
        return [path.parent / name for name in _locations(model, onnx.TensorProto)]
    except Exception:  # protobuf's own error types differ between its backends
        return []


def _locations(message: Any, tensors: type[Any]) -> set[str]:
    found: set[str] = set()
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in [value] if hasattr(value, "ListFields") else value:
            if isinstance(one, tensors):
                found |= {item.value for item in one.external_data if item.key == "location"}
            else:
                found |= _locations(one, tensors)
    return found


def _named_by_sweep(path: Path) -> list[Path]:
    """Models, machines, images and labels of a specification, and the store beside it."""
    try:
        if not _holds(path, b"models", MOST_FILE_BYTES):
            return []
    except OSError:
        return []
    from tvm_npu.sweep.spec import SweepError, read_spec

    try:
        spec = read_spec(path)
    except SweepError:
        return []
    images = spec.accuracy.values()
    named = [
        *spec.models, spec.machine.base, *spec.machine.files,
        *(one.images for one in images), *(one.labels for one in images),
    ]  # fmt: skip
    return [Path(one) for one in named if one] + [path.with_suffix(".sweep")]


def _holds(path: Path, word: bytes, most: int) -> bool:
    """Whether ``word`` is in a file of at most ``most`` bytes."""
    if not os.path.isfile(path) or not 0 < os.path.getsize(path) <= most:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(word) >= 0
