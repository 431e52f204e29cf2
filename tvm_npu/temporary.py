"""Temporary folders that go when their process does, also when it is killed.

A shell beside the process waits for a line through a pipe that the process holds open, or for the
end of it, whatever closes it, and removes what is left then.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_REMOVE = 'read -r _; rm -rf -- "$0"'


class Remover:
    """Removes ``folder`` when it is closed, at the end of the process at the latest; `close` waits
    for that. Without a shell it does nothing."""

    def __init__(self, folder: Path) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _REMOVE, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,  # nobody who ends the process's group ends it
            )  # fmt: skip

    def close(self) -> None:
        if self._shell is not None:  # the line, because forked processes may hold the pipe, too
            self._shell.communicate(b"\n")


class TemporaryFolder:
    """A new folder at ``path``, which `close` removes, the end of the process at the latest."""

    def __init__(self, prefix: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=prefix)
        self.path = Path(self._folder.name)
        self._remover = Remover(self.path)

    def close(self) -> None:
        self._folder.cleanup()
        self._remover.close()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder for the block."""
    folder = TemporaryFolder(prefix)
    try:
        yield folder.path
    finally:
        folder.close()
