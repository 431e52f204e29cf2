"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
from pathlib import Path

from tvm_npu.sim.texts import cause

_DESCRIPTORS = re.compile(r"/proc/[0-9]+(/task/[0-9]+)?/fd")
_MOST_LINKS = 40
"""From one to the next; Linux follows as many."""


def write_whole(path: str | Path, *parts: bytes | bytearray) -> None:
    """The parts, one behind the other: into a temporary file beside ``path``, or beside what it
    links to, then a rename; straight into pipes and devices. A file that is there keeps its
    permissions. What is open already, such as ``/dev/stdout``, is gone on with, behind what is in
    it. Raises OSError, and leaves nothing behind then."""
    named = Path(path)
    descriptor = _open_already(named)
    if descriptor is not None:
        if sys.stdout is not None:
            sys.stdout.flush()  # what was printed before comes before
        with open(os.dup(descriptor), "wb") as file:
            file.writelines(parts)
        return
    if named.exists() and not named.is_file():
        with open(named, "wb") as file:
            file.writelines(parts)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")  # a name may have its full length
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    try:
        with open(temporary, "xb", opener=None if mode is None else _private) as file:
            file.writelines(parts)
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _open_already(path: Path) -> int | None:
    """The descriptor of this process that ``path`` names or is a link to."""
    own = os.path.realpath("/proc/self")
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder.startswith(f"{own}/") and _DESCRIPTORS.fullmatch(folder):
            return int(path.name) if path.name.isdecimal() else None
        if not os.path.islink(path):
            return None
        path = Path(folder, os.readlink(path))
    return None


def _private(path: str, flags: int) -> int:
    """Nobody reads it before it has the permissions of what it replaces."""
    return os.open(path, flags, 0o600)


def unwritable(path: Path) -> str | None:
    """Why no file can be written at ``path``, as far as the system tells before; None where one
    can."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        found = None
    except OSError as error:
        return cause(error)
    if found is not None and stat.S_ISDIR(found.st_mode):
        return "it is a folder"
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        return f"there is no folder {folder!r}"
    can = found is None or os.access(path, os.W_OK)
    if found is None or (stat.S_ISREG(found.st_mode) and _open_already(path) is None):
        can = can and os.access(folder, os.W_OK | os.X_OK)  # the temporary file lies beside it
    return None if can else "permission denied"


def unwritable_folder(folder: Path) -> str | None:
    """Why no files can be written into ``folder``, which may have to be made; None where some
    can."""
    folder = folder.absolute()
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        return cause(error)
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not os.path.isdir(there):
        return f"{str(there)!r} is no folder"
    can = os.access(there, os.W_OK | os.X_OK)
    return None if can else f"permission denied in {str(there)!r}"
