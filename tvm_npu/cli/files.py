"""Result files: written whole or not at all, and checked for writability before long work."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.read_files import files_read_for
from tvm_npu.cli.shown import shown
from tvm_npu.sim.bounded_files import MOST_BYTES, read_bounded
from tvm_npu.sim.texts import cause, encoded
from tvm_npu.sim.whole_files import unwritable, unwritable_folder, write_whole

FORMULAS = ("=", "+", "-", "@")
"""Beginnings of a spreadsheet's."""
FILES_OR_NAMES = ("machine", "machines", "name", "platform", "text_machine")
"""Arguments that are texts, and may name a file; others that do are paths."""


TUNER_LOG = "tuning_log"
"""The argument whose folder a tuner keeps whatever it likes in, by model and door."""


def check_writable(path: Path) -> None:
    """CliError when ``path`` cannot be written. Called before the work whose results it gets."""
    why = unwritable(path)
    if why is not None:
        raise CliError(f"cannot write {str(path)!r}: {why}")


def check_folder(folder: Path) -> None:
    """CliError when no files can be written into ``folder``, which may have to be made. Called
    before the work whose results it gets."""
    why = unwritable_folder(folder)
    if why is not None:
        raise CliError(f"cannot write into {str(folder)!r}: {why}")


def check_outputs(args: argparse.Namespace, *names: str) -> None:
    """Before the work: `check_writable` and `check_apart` of the files that the arguments ``names``
    get, those that are given."""
    for name in names:
        for path in _files(name, getattr(args, name)):
            check_writable(path)
            check_apart(path, args, name)


def check_apart(path: Path, args: argparse.Namespace, name: str) -> None:
    """CliError when ``path``, which the argument ``name`` gets, is the file of another argument, or
    is read because of one: it would be lost. Devices and pipes may be both."""
    is_there = os.path.exists(path)
    if is_there and not os.path.isfile(path):
        return
    for other, value in vars(args).items():
        if other == name:
            continue
        for file in _files(other, value):
            if _is_same(path, file):
                raise CliError(
                    f"cannot write {str(path)!r}: another argument names the same file; give "
                    f"--{name} one of its own"
                )
            if is_there and any(
                _is_same(path, one) for one in files_read_for(file, other == TUNER_LOG)
            ):
                raise CliError(
                    f"cannot write {str(path)!r}: it is read for {str(file)!r}, which another "
                    f"argument names; give --{name} one of its own"
                )


def _files(name: str, value: object) -> list[Path]:
    """That an argument names."""
    values = value if isinstance(value, list | tuple) else [value]
    kinds = (Path, str) if name in FILES_OR_NAMES else Path
    return [Path(one) for one in values if isinstance(one, kinds)]


def _is_same(one: Path, two: Path) -> bool:
    try:
        return os.path.samefile(one, two)
    except OSError:  # one of them is not there yet
        return os.path.realpath(one) == os.path.realpath(two)


def write_bytes(path: Path, *parts: bytes | bytearray) -> None:
    """`write_whole`, with CliError where it cannot be."""
    check_writable(path)
    try:
        write_whole(path, *parts)
    except OSError as error:
        raise CliError(f"cannot write {str(path)!r}: {cause(error)}") from error


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of a text, whatever file names are in it."""
    write_bytes(path, encoded(text))


def write_json(path: Path, content: Any) -> None:
    """Indented, keys in the given order; NaN is refused, since JSON has none."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A heading of all keys, in the order in which rows have them, and a line a row; what a row
    does not have, or has as None, is empty. Control characters in texts are escaped, and an
    apostrophe stands before those that spreadsheets take for formulas."""
    text = io.StringIO()
    keys = dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(text, list(keys), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.startswith(FORMULAS) else text


def read_bytes(path: Path, what: str, most: int = MOST_BYTES, *begins: bytes) -> bytes:
    """`read_bounded`, with CliError where it cannot be."""
    try:
        return read_bounded(path, most, *begins)
    except OSError as error:
        raise CliError(f"cannot read {what} {str(path)!r}: {cause(error)}") from error

