"""TOML and JSON from anywhere: bounded before they are parsed, one error for all that is wrong."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from tvm_npu.sim.errors import SimError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_CHARACTERS = 1 << 20
"""Of a description or a platform file; such files have a few thousand."""
MOST_KEY_PARTS = 100
"""Dots of a line of TOML: each part of a key is a table of its own."""
MOST_TOML_VALUES = 1 << 16
"""Values, tables and parts of keys of a text in TOML; such files have some hundred."""
JSON_MARKS = ",[{"
TOML_MARKS = ",[{=."
"""One of these stands before or behind every value (of JSON: every one but the first)."""
MOST_FILE_BYTES = 4 * MOST_CHARACTERS
"""Of the file of such a text: UTF-8 has at most 4 bytes a character."""
LONGEST_SHOWN = 80


class TextError(SimError, ValueError):
    """Text that is not what it is called, or too large for it."""


def shown(value: object) -> str:
    """A value in a message: its repr, cut where it is long; numbers too long for one by size."""
    if isinstance(value, int) and abs(value) >= 1 << 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__} of {len(value)} items"
    text = repr(value[: 2 * LONGEST_SHOWN] if isinstance(value, str) else value)
    return cut(text)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where the given name is known or like no known one."""
    near = difflib.get_close_matches(str(given), list(known), 1)
    return f"; did you mean {near[0]!r}?" if near and near[0] != given else ""


def cause(error: Exception) -> str:
    """What went wrong, for a message that names the file: without errno and path where the system
    said it; of files that are no text, which byte is none."""
    if isinstance(error, UnicodeDecodeError):
        return f"not text (byte {error.start}: {error.reason})"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def cut(text: str, most: int = LONGEST_SHOWN) -> str:
    """``text`` for a message, not longer than ``most``."""
    return text if len(text) <= most else text[: most - 3] + "..."


def encoded(text: str) -> bytes:
    """UTF-8. Bytes of file names that are no text, which Python has as surrogates, become escapes
    that JSON knows, too."""
    return text.encode("utf-8", "backslashreplace")


def _check_size(text: str, most: int) -> None:
    if len(text) > most:
        raise TextError(f"{len(text)} characters; at most {most}")


def check_values(text: str | bytes, most: int, marks: str = JSON_MARKS, help_: str = "") -> None:
    """Raises TextError for a text of more than ``most`` values, before a parser makes objects of
    them, each of which takes a hundred bytes, and as a mistake a thousand. Counted are ``marks``,
    those inside of strings and comments, too."""
    found = sum(
        text.count(mark.encode()) if isinstance(text, bytes) else text.count(mark)
        for mark in marks
    )
    if found > most:
        named = " ".join(repr(mark)[1:-1] for mark in marks)
        raise TextError(f"{found} values, by its marks {named}; at most {most}{help_}")


def parse_toml(text: str, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """Raises TextError."""
    _check_size(text, most)
    if text.startswith("\ufeff"):
        raise TextError(
            "begins with a byte order mark, which TOML does not know; save it as UTF-8 without one"
        )
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MOST_KEY_PARTS and not line.lstrip().startswith("#"):
            raise TextError(f"line {number} has {line.count('.')} dots; at most {MOST_KEY_PARTS}")
    check_values(text, MOST_TOML_VALUES, TOML_MARKS, "; leave out what nobody needs")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TextError("arrays or tables are nested too deeply") from None
    except ValueError as error:  # its own error, and those of numbers and times
        raise TextError(f"not TOML: {_first_line(error)}") from None


NAME = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
NAMES = rf"({NAME}(?:\s*\.\s*{NAME})*)"
KEY = re.compile(rf"\s*{NAMES}\s*=")
TABLE = re.compile(rf"\s*\[\[?\s*{NAMES}\s*\]\]?\s*(?:#.*)?$")
LONG_TEXT = re.compile(r"\"\"\"|'''")


def lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """In which line of a TOML file each key and each table's heading stands. Keys of an inline
    table stand where the table does, and are not listed."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    inside_text = False
    for number, line in enumerate(text.split("\n"), 1):
        if not inside_text:
            heading, key = TABLE.match(line), KEY.match(line)
            if heading is not None:
                table = _key_parts(heading[1])
                found.setdefault(table, number)
            elif key is not None:
                found.setdefault((*table, *_key_parts(key[1])), number)
        inside_text ^= len(LONG_TEXT.findall(line)) % 2 == 1
    return found


def _key_parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def parse_json(text: str, most: int = MOST_CHARACTERS) -> Any:
    """Raises TextError, also for NaN and infinities."""
    _check_size(text, most)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise TextError("lists or objects are nested too deeply") from None
    except ValueError as error:
        raise TextError(f"not JSON: {_first_line(error)}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."
