"""Files of others, read whole: never more of one than its reader takes, and none without an end."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from typing import BinaryIO

from tvm_npu.sim.errors import SimError

MOST_BYTES = 1 << 32
"""Of programs, libraries and models."""
MOST_EXECUTABLE_BYTES = 1 << 29
"""Machines have 2^30 bytes of DRAM."""
MOST_TEXT_BYTES = 1 << 26
"""Of tuning logs, execution plans, labels and profiles."""
_PIECE_BYTES = 1 << 20
_OPEN_ALREADY = re.compile(r"/dev/stdin|(/dev/fd|/proc/self/fd)/[0-9]+")
"""How a process names the pipes that it was started with: ``/dev/stdin``, a shell's ``<(...)``."""
_KINDS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip

_Name = str | os.PathLike[str]


class FileError(SimError, OSError):
    """A file that is larger than its reader takes, or what is no file; ``strerror`` says so without
    its name."""

    def __init__(self, number: int, why: str, path: _Name) -> None:
        super().__init__(number, why, os.fspath(path))

    def __str__(self) -> str:
        return f"cannot read {self.filename!r}: {self.strerror}"


def read_bounded(path: _Name, most: int = MOST_BYTES, *begins: bytes) -> bytes:
    """All of a file, or of a pipe that this process was started with; of one that begins with none
    of ``begins``, if any are given, only its beginning, for the reader to refuse. Raises FileError
    for more than ``most`` bytes, devices and named pipes, which may have no end, and OSError."""
    descriptor = _open(path)
    try:
        return read_descriptor(descriptor, path, most, *begins)
    finally:
        os.close(descriptor)


def read_text_bounded(
    path: _Name, most: int = MOST_TEXT_BYTES, newline: str | None = None
) -> str:
    """`read_bounded` of UTF-8; ``newline`` as `open` takes it. Raises UnicodeDecodeError, too."""
    text = read_bounded(path, most).decode("utf-8")
    return text if newline == "" else io.StringIO(text, newline).read()


def read_descriptor(
    descriptor: int, path: _Name, most: int = MOST_BYTES, *begins: bytes
) -> bytes:
    """`read_bounded` of what is open, from where it stands."""
    size = _checked_size(descriptor, path, most, bool(_OPEN_ALREADY.fullmatch(os.fspath(path))))
    pieces: list[bytes] = []
    left = most + 1
    # A read of the system gives 2 GiB at most, and pieces are copied when they become one.
    with open(descriptor, "rb", closefd=False) as file:
        head = file.read(max(map(len, begins), default=0))
        if begins and not head.startswith(begins):
            return head
        if file.seekable():
            file.seek(-len(head), os.SEEK_CUR)
        elif head:
            pieces.append(head)
            left -= len(head)
        while left > 0:
            piece = file.read(min(left, max(size + 1, _PIECE_BYTES)))
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            left -= len(piece)
            size -= len(piece)
    raise _too_large(f"more than {most}", most, path)


def open_bounded(path: _Name, most: int = MOST_BYTES) -> BinaryIO:
    """For those who read a file in parts: open, and no larger than ``most``. Raises as
    `read_bounded` does, and FileError for every pipe."""
    descriptor = _open(path)
    try:
        _checked_size(descriptor, path, most, False, "give a file, which can be read in parts")
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def kept_pipe(path: _Name, most: int = MOST_BYTES) -> BinaryIO | None:
    """For those who read a file more than once: a file without a name with what comes out of a pipe
    that this process was started with; None for all else. Raises as `read_bounded`."""
    import tempfile

    if not _OPEN_ALREADY.fullmatch(os.fspath(path)):
        return None
    with open(_open(path), "rb", buffering=0) as pipe:
        if not stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode):
            return None
        os.set_blocking(pipe.fileno(), True)
        file: BinaryIO = tempfile.TemporaryFile()  # type: ignore[assignment]
        try:
            left = most + 1
            while left > 0 and (piece := pipe.read(min(left, _PIECE_BYTES))):
                file.write(piece)
                left -= len(piece)
            file.flush()
            if left <= 0:
                raise _too_large(f"more than {most}", most, path)
        except BaseException:
            file.close()
            raise
    return file


def _open(path: _Name) -> int:
    """Without waiting for the other end of a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


def _checked_size(
    descriptor: int, path: _Name, most: int, takes_pipes: bool,
    help_: str = "give a file, or /dev/stdin",
) -> int:  # fmt: skip
    found = os.fstat(descriptor)
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind == stat.S_IFIFO and takes_pipes:
        os.set_blocking(descriptor, True)
    elif kind != stat.S_IFREG:
        what = _KINDS.get(kind, "no file")
        raise FileError(errno.EINVAL, f"{what}, which may have no end; {help_}", path)
    if found.st_size > most:
        raise _too_large(str(found.st_size), most, path)
    return found.st_size


def _too_large(size: str, most: int, path: _Name) -> FileError:
    return FileError(errno.EFBIG, f"{size} bytes; such a file may have {most}", path)
