"""Machine code of simulators and planners that lies on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cache:
    """Of one package: where its machine code for one Python lies beside the sources, of how many
    functions, in how many bytes, and whether more can be kept there."""

    package: str
    folder: str
    functions: int
    size_bytes: int
    writable: bool


def caches(roots: Mapping[str, Path], python: tuple[int, ...]) -> Iterator[Cache]:
    """One for each of ``roots``, the folders of packages by name; of Python (major, minor, ...)."""
    tag = "py" + "".join(map(str, python[:2]))
    for package, root in roots.items():
        index = list(root.rglob(f"__pycache__/*.{tag}.nbi"))
        code = list(root.rglob(f"__pycache__/*.{tag}.*.nbc"))
        size = sum(path.stat().st_size for path in (*index, *code))
        yield Cache(package, str(root), len(index), size, os.access(root, os.W_OK))
