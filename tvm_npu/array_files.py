"""Arrays from files of NumPy, whoever wrote them: one error for all that can be wrong."""

from __future__ import annotations

import io
import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.bounded_files import open_bounded
from tvm_npu.sim.texts import cause

DAMAGE = (OSError, ValueError, EOFError, KeyError, MemoryError, SyntaxError, NotImplementedError,
          RuntimeError, IndexError, OverflowError, TypeError, AttributeError, tokenize.TokenError,
          zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What NumPy, zipfile and Pillow raise on files that are damaged or not what they are called."""

MOST_ARRAY_BYTES = 1 << 32
"""Of a file's arrays, unpacked: their headers say how many before they are."""
MOST_FILE_BYTES = MOST_ARRAY_BYTES + (1 << 20)
"""With headers."""
MOST_ARRAYS = 10_000
"""In a file: each costs a tenth of a millisecond, whatever it holds."""
MOST_INFLATED_BYTES = 1 << 28
"""Of the arrays of a file that is less than one part in `MOST_INFLATION` of them."""
MOST_INFLATION = 100
"""Images and activations compress to a tenth at best; zeros to a thousandth."""

_MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 1 << 14
"""NumPy reads no longer ones from files that it does not trust."""
_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def reason(error: Exception) -> str:
    """Why, in a line, without the name of the file."""
    return " ".join(cause(error).split())[:200] or type(error).__name__


def read_array(path: Path) -> NDArray[Any]:
    """The array of an .npy file. Raises one of `DAMAGE`."""
    with open_bounded(path, MOST_FILE_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        if not file.read(len(_MAGIC)) == _MAGIC:
            raise ValueError("not an .npy file")
        file.seek(0)
        _check_header(file, path.name, size)
        file.seek(0)
        loaded: NDArray[Any] = np.load(file, allow_pickle=False)
    return loaded


def array_names(path: Path) -> tuple[str, ...]:
    """The names of an .npz file's arrays, which are not read. Raises one of `DAMAGE`."""
    with open_bounded(path, MOST_FILE_BYTES) as file, _archive(file) as loaded:
        return tuple(loaded.files)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name. Raises one of `DAMAGE`."""
    with open_bounded(path, MOST_FILE_BYTES) as file, _archive(file) as loaded:
        _check_sizes(loaded.zip, os.fstat(file.fileno()).st_size)
        arrays = {name: loaded[name] for name in loaded.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name!r} is no array")
    return arrays


def _archive(file: IO[bytes]) -> Any:
    """NumPy's NpzFile."""
    if file.read(len(_MAGIC)) == _MAGIC:
        raise ValueError("not an .npz file")
    file.seek(0)
    return np.load(file, allow_pickle=False)


def _check_sizes(file: zipfile.ZipFile, file_bytes: int) -> None:
    """ValueError for arrays that are larger than they may be, before anything is unpacked."""
    members = file.infolist()
    if len(members) > MOST_ARRAYS:
        raise ValueError(f"it has {len(members)} arrays; at most {MOST_ARRAYS}")
    _check_size(sum(member.file_size for member in members), file_bytes)
    _check_size(sum(_array_bytes(file, member) for member in members), file_bytes)


def _check_size(size: int, file_bytes: int) -> None:
    if size > MOST_ARRAY_BYTES:
        raise ValueError(f"its arrays have {size} bytes; at most {MOST_ARRAY_BYTES}")
    if size > max(MOST_INFLATED_BYTES, MOST_INFLATION * file_bytes):
        raise ValueError(
            f"its arrays have {size} bytes in a file of {file_bytes}; at most "
            f"{MOST_INFLATED_BYTES}, or {MOST_INFLATION} times the file's (numpy.savez does not "
            "compress)"
        )


def _array_bytes(file: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """What a member's header says that its array has; ValueError where it holds fewer."""
    with file.open(member) as stream:
        return _check_header(stream, member.filename, member.file_size)


def _check_header(stream: IO[bytes], name: str, file_size: int) -> int:
    """`_array_bytes` of what is called ``name``, of ``file_size`` bytes."""
    head = io.BytesIO(stream.read(_HEADER_BYTES))
    if not head.getvalue().startswith(_MAGIC):
        raise ValueError(f"{name!r} is no array")
    version = np.lib.format.read_magic(head)
    if version not in _HEADER_READERS:
        raise ValueError(f"{name!r} has version {version}; 1.0 and 2.0 are read")
    shape, _, dtype = _HEADER_READERS[version](head)
    if any(extent < 0 for extent in shape):
        raise ValueError(f"{name!r} has shape {shape}")
    if dtype.hasobject:  # which NumPy refuses
        return 0
    size = math.prod(shape) * dtype.itemsize
    held = file_size - head.tell()
    if size > held:
        raise ValueError(f"{name!r} {shape} has {size} bytes, of which it holds {held}")
    return size
