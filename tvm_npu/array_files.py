"""Arrays from files of NumPy, whoever wrote them: one error for all that can be wrong."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMAGE = (OSError, ValueError, EOFError, KeyError, MemoryError, SyntaxError, NotImplementedError,
          RuntimeError, IndexError, OverflowError, TypeError, AttributeError, tokenize.TokenError,
          zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What NumPy, zipfile and Pillow raise on files that are damaged or not what they are called."""

MOST_ARRAY_BYTES = 1 << 32
"""Of a file's arrays, unpacked: an .npz says how many before they are read."""


def reason(error: BaseException) -> str:
    """Why, in a line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def read_array(path: Path) -> NDArray[Any]:
    """The array of an .npy file. Raises one of `DAMAGE`."""
    loaded = np.load(path, allow_pickle=False)
    if not isinstance(loaded, np.ndarray):
        raise ValueError("not an .npy file")
    return loaded


def array_names(path: Path) -> tuple[str, ...]:
    """The names of an .npz file's arrays, which are not read. Raises one of `DAMAGE`."""
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise ValueError("not an .npz file")
    with loaded:
        return tuple(loaded.files)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name. Raises one of `DAMAGE`."""
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise ValueError("not an .npz file")
    with loaded:
        size = sum(member.file_size for member in loaded.zip.infolist())
        if size > MOST_ARRAY_BYTES:
            raise ValueError(f"its arrays have {size} bytes; at most {MOST_ARRAY_BYTES}")
        arrays = {name: loaded[name] for name in loaded.files}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name!r} is no array")
    return arrays
