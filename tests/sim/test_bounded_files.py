"""Files are read up to a bound, and what may have no end is refused at once."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.sim.bounded_files import FileError, open_bounded, read_bounded, read_text_bounded
from tvm_npu.sim.errors import SimError

HUGE = 60 << 30


def sparse(path: Path, size: int = HUGE) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size in (0, 1, 99, 100):
        path.write_bytes(b"x" * size)
        assert read_bounded(path, 100) == read_bounded(str(path), 100) == b"x" * size
        with open_bounded(path, 100) as file:
            assert file.read() == b"x" * size
    path.write_bytes(b"x" * 101)
    for use in (read_bounded, open_bounded, read_text_bounded):
        with pytest.raises(FileError) as caught:
            use(path, 100)
        text = f"cannot read {str(path)!r}: 101 bytes; such a file may have 100"
        assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value))) == text
        assert isinstance(caught.value, SimError) and caught.value.filename == str(path)


def test_text_is_read_as_open_does(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("é\r\nx\ry\n".encode())
    assert read_text_bounded(path) == path.read_text("utf-8") == "é\nx\ny\n"
    assert read_text_bounded(path, newline="") == "é\r\nx\ry\n"
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text_bounded(path)


def test_huge_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = sparse(tmp_path / "a")
    tracemalloc.start()
    for use in (read_bounded, open_bounded):
        with pytest.raises(FileError, match=f"{HUGE} bytes; such a file may have 4294967296"):
            use(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_of_a_file_that_begins_otherwise_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"", b"M", b"MAGIC", b"MAGIC and so on"):
        path.write_bytes(content)
        assert read_bounded(path, 1 << 20, b"ELF", b"MAGIC") == content
        read, write = os.pipe()
        os.write(write, content)
        os.close(write)
        assert read_bounded(f"/dev/fd/{read}", 1 << 20, b"ELF", b"MAGIC") == content
        os.close(read)
    sparse(path, 1 << 28)
    tracemalloc.start()
    assert read_bounded(path, 1 << 28, b"magic", b"ELF") == b"MAGIC"
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_file_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own call gives no more than 2 GiB at a time; here that is 1 MiB."""
    path, size, read = sparse(tmp_path / "a", 1 << 23), 1 << 23, os.read
    monkeypatch.setattr(os, "read", lambda file, most: read(file, min(most, 1 << 20)))
    tracemalloc.start()
    assert len(read_bounded(path)) == size
    assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    tracemalloc.stop()


def test_files_that_say_that_they_are_empty() -> None:
    """Files of /proc have size 0."""
    assert read_bounded("/proc/self/stat").startswith(str(os.getpid()).encode())
    with pytest.raises(FileError, match="more than 3 bytes; such a file may have 3"):
        read_bounded("/proc/self/stat", 3)


def test_what_may_have_no_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in ((Path("/dev/zero"), "a device"), (pipe, "a named pipe")):
        for use in (read_bounded, open_bounded):
            with pytest.raises(FileError, match=f"{str(path)!r}: {what}, which may have no end"):
                use(path)
    with socket.socket(socket.AF_UNIX) as file:
        file.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError):
            read_bounded(tmp_path / "socket")
    with pytest.raises(IsADirectoryError) as caught:
        read_bounded(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_bounded(tmp_path / "none")


def test_pipes_that_the_process_has(tmp_path: Path) -> None:
    """All of them, waited for, and no more than the bound of one that never ends."""
    read, write = os.pipe()
    content = b"y" * 1_000_000  # more than a pipe holds
    later = threading.Timer(0.05, lambda: (os.write(write, content), os.close(write)))
    later.start()
    try:
        assert read_bounded(f"/dev/fd/{read}", len(content)) == content
        with pytest.raises(FileError, match="a named pipe"):
            open_bounded(f"/proc/self/fd/{read}")
    finally:
        os.close(read)  # before the wait: who could not read it all leaves a writer that waits
        later.join()
    program = "from tvm_npu.sim.bounded_files import read_bounded; read_bounded('/dev/stdin', 999)"
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(
            [sys.executable, "-c", program], stdin=endless.stdout, capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        endless.kill()
    assert "more than 999 bytes; such a file may have 999" in done.stderr
