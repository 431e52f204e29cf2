"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: str | Path, *parts: bytes | bytearray) -> None:
    """The parts, one behind the other: into a temporary file beside ``path``, or beside what it
    links to, then a rename; straight into pipes and devices. A file that is there keeps its
    permissions. Raises OSError, and leaves nothing behind then."""
    named = Path(path)
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


def _private(path: str, flags: int) -> int:
    """Nobody reads it before it has the permissions of what it replaces."""
    return os.open(path, flags, 0o600)
