"""Files of arrays: sizes are told from headers, before arrays are unpacked."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tvm_npu import array_files
from tvm_npu.array_files import MOST_ARRAY_BYTES, array_names, read_array, read_arrays


def header(shape: str, dtype: str = "'<f4'", version: int = 1) -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


def file_of(path: Path, *members: bytes) -> Path:
    with zipfile.ZipFile(path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for number, content in enumerate(members):
            file.writestr(f"x{number}.npy", content)
    return path / "a.npz"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back(save, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    given = {"a": np.arange(6.0).reshape(2, 3), "b": np.asfortranarray(np.eye(3)), "c": np.int8(3)}
    save(tmp_path / "a.npz", none=np.zeros((0, 3)), **given)
    found = read_arrays(tmp_path / "a.npz")
    assert set(found) == {*given, "none"} == set(array_names(tmp_path / "a.npz"))
    assert all(np.array_equal(found[name], array) for name, array in given.items())
    assert read_arrays(file_of(tmp_path, header("(2,)", version=2) + bytes(8)))["x0"].size == 2


def test_small_files_of_large_arrays(tmp_path: Path) -> None:
    """320 MB of zeros in 320 kB: refused before any is unpacked."""
    path = file_of(tmp_path, *[header("(20000000,)") + bytes(80_000_000)] * 4)
    assert path.stat().st_size < 400_000
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"have 32000\d+ bytes in a file of \d+; .*numpy.savez"):
        read_arrays(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_files_of_very_many_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for number in range(array_files.MOST_ARRAYS + 1):
            file.writestr(f"x{number}.npy", b"")
    with pytest.raises(ValueError, match="it has 10001 arrays; at most 10000"):
        read_arrays(tmp_path / "a.npz")


def test_all_arrays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "MOST_ARRAY_BYTES", 1000)
    np.savez(tmp_path / "a.npz", a=np.zeros(50), b=np.zeros(50))
    with pytest.raises(ValueError, match=r"its arrays have 10\d\d bytes; at most 1000"):
        read_arrays(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header(f"({MOST_ARRAY_BYTES},)"), r"has 17179869184 bytes, of which it holds 0"),
        (header("(3,)") + bytes(11), "has 12 bytes, of which it holds 11"),
        (header("(-1,)"), r"has shape \(-1,\)"),
        (header("(1, -1, -4)") + bytes(16), r"has shape \(1, -1, -4\)"),
        (header("(1,)", "'|O'") + bytes(8), "allow_pickle"),
        (header("(1,)", "('<f4', (1000, 1000))"), "has 4000000 bytes, of which it holds 0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(99), "reading array header"),
        (b"\x93NUMPY\x09\x00" + bytes(99), r"version"),
        (b"hello", "'x0.npy' is no array"),
    ],
)
def test_headers_that_lie(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_arrays(file_of(tmp_path, content))


def test_headers_of_gigabytes(tmp_path: Path) -> None:
    path = file_of(tmp_path, b"\x93NUMPY\x02\x00" + struct.pack("<I", 200_000_000) + bytes(10**8))
    tracemalloc.start()
    with pytest.raises(ValueError, match="reading array header"):
        read_arrays(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("(8589934592,)"), r"'a.npy' \(8589934592,\) has 34359738368 bytes, of which it"),
        (header("(3,)") + bytes(11), "has 12 bytes, of which it holds 11"),
        (b"PK\x05\x06" + bytes(18), "not an .npy file"),
        (b"", "not an .npy file"),
    ],
)
def test_files_of_one_array_that_lie(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_array(path)


def test_one_array_comes_back(tmp_path: Path) -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)), np.zeros((0, 3))):
        np.save(tmp_path / "a.npy", array)
        assert np.array_equal(read_array(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("read", [read_array, read_arrays, array_names])
def test_sparse_files_and_files_without_an_end(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "a.npy"
    path.write_bytes(header("(8589934592,)"))
    os.truncate(path, 32 << 30)
    with pytest.raises(OSError, match="34359738368 bytes; such a file may have"):
        read(path)
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(OSError, match="a named pipe"):
        read(tmp_path / "pipe.npz")
