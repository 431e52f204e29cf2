"""Result files: written whole or not at all, and checked for writability before long work."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.shown import shown
from tvm_npu.sim.texts import cause
from tvm_npu.sim.whole_files import write_whole

FORMULAS = ("=", "+", "-", "@")
"""Beginnings of a spreadsheet's."""


def check_writable(path: Path) -> None:
    """CliError when ``path`` cannot be written. Called before the work whose results it gets."""
    if path.is_dir():
        raise CliError(f"cannot write {str(path)!r}: it is a folder")
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise CliError(f"cannot write {str(path)!r}: there is no folder {str(parent)!r}")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise CliError(f"cannot write {str(path)!r}: permission denied")


def write_bytes(path: Path, *parts: bytes | bytearray) -> None:
    """`write_whole`, with CliError where it cannot be."""
    check_writable(path)
    try:
        write_whole(path, *parts)
    except OSError as error:
        raise CliError(f"cannot write {str(path)!r}: {cause(error)}") from error


def write_json(path: Path, content: Any) -> None:
    """Indented, keys in the given order; NaN is refused, since JSON has none."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write_bytes(path, text.encode() + b"\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A heading of all keys, in the order in which rows have them, and a line a row; what a row
    does not have, or has as None, is empty. Control characters in texts are escaped, and an
    apostrophe stands before those that spreadsheets take for formulas."""
    text = io.StringIO()
    keys = dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(text, list(keys), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    write_bytes(path, text.getvalue().encode())


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


def read_bytes(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {what} {str(path)!r}: {cause(error)}") from error

