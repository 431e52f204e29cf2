"""Finished parts on disk, so that an interrupted run goes on where it stopped.

Beside the output file FILE lies the folder ``FILE.work`` while a run is not finished. In it, each
combination of study, options and code has a folder with ``parts.jsonl``, one line ``{"key": ...,
"value": ...}`` a part, and with whatever files parts leave for later ones. A line is written when
its part is done; what follows the last whole line is the rest of a run that was killed, and is cut
off. The folder goes when the output files have been written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic_core import to_json

import tvm_npu
import tvm_npu.codegen
import tvm_npu.runtime
import tvm_npu.sim
from studies.harness.errors import StudyError
from studies.harness.study import Key

SOURCES = (".py", ".toml", ".c")
LIBRARIES = ("numpy", "scipy", "numba", "xtc-tvm-python-bindings", "onnx", "xgboost-cpu")


class WorkFolder:
    """Values of finished parts by key, as JSON. Raises StudyError for a folder that another run
    uses or that cannot be written."""

    def __init__(self, output: Path, code: str, options: str, *, restart: bool = False) -> None:
        self._root = output.with_name(f"{output.name}.work")
        self.folder = self._root / f"{code}-{options}"
        self.values: dict[Key, Any] = {}
        try:
            self._root.mkdir(exist_ok=True)
            self._lock = (self._root / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for other in self._root.iterdir():
                # What other code computed is of no use any more.
                if other.is_dir() and not other.name.startswith(f"{code}-"):
                    shutil.rmtree(other)
            if restart and self.folder.exists():
                shutil.rmtree(self.folder)
            self.folder.mkdir(exist_ok=True)
            self._log = self._opened(self.folder / "parts.jsonl")
        except BlockingIOError as error:
            raise StudyError(f"another run is writing {str(output)!r}") from error
        except OSError as error:
            raise StudyError(f"cannot keep work in {str(self._root)!r}: {error}") from error

    def _opened(self, path: Path) -> Any:
        """Reads what there is, cuts off a torn end, and is ready to append."""
        log = path.open("a+b")
        log.seek(0)
        whole = 0
        for line in log:
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                self.values[tuple(entry["key"])] = entry["value"]
            except (ValueError, KeyError, TypeError):
                break
            whole += len(line)
        log.truncate(whole)
        log.seek(0, os.SEEK_END)
        return log

    def keep(self, key: Key, value: Any) -> None:
        line = json.dumps({"key": key, "value": value}, ensure_ascii=False)
        try:
            self._log.write(line.encode() + b"\n")
            self._log.flush()
            self.values[key] = value
        except OSError as error:
            raise StudyError(f"cannot keep work in {str(self.folder)!r}: {error}") from error

    def close(self) -> None:
        """Leaves the values there."""
        self._log.close()
        self._lock.close()

    def remove(self) -> None:
        """The run is finished. Work of runs with other options stays."""
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        if not any(one.is_dir() for one in self._root.iterdir()):
            shutil.rmtree(self._root, ignore_errors=True)
        self._lock.close()


def code_version(study: Path) -> str:
    """Of everything that a value of the study in this folder depends on besides its options: the
    sources of the product, of the harness and of the study, Python and the libraries."""
    digest = hashlib.sha256(sys.version.encode())
    for library in LIBRARIES:
        try:
            digest.update(f"{library} {metadata.version(library)}".encode())
        except metadata.PackageNotFoundError:
            pass
    for name, path in sorted(_sources(study)):
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _sources(study: Path) -> Iterator[tuple[str, Path]]:
    studies = Path(__file__).parents[1]
    roots = [studies / "harness", studies / "shared", study]
    for package in (tvm_npu, tvm_npu.codegen, tvm_npu.runtime, tvm_npu.sim):
        roots.append(Path(str(package.__file__)).parent)
    seen: set[Path] = set()
    for root in roots:
        for folder, inner, files in os.walk(root):
            inner[:] = [name for name in inner if name != "__pycache__"]
            for file in files:
                path = Path(folder, file)
                if path.suffix in SOURCES and path not in seen:
                    seen.add(path)
                    yield f"{root.name}/{path.relative_to(root)}", path


def options_version(study: str, options: dict[str, Any]) -> str:
    """Of the options that the values depend on."""
    text = to_json([study, sorted(options.items())], serialize_unknown=True)
    return hashlib.sha256(text).hexdigest()[:12]
