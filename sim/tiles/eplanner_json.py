"""e-PlaNNer's description of an accelerator (thesis, Figure 6.1) as a tile machine.

A JSON object with five keys; ``//`` begins a comment::

    {
      "bandwidth": 1.6,            // off-chip bandwidth, GB/s
      "frequency": 1.2,            // PE clock, GHz
      "mem_size": [368, 288, 144], // input, weight and output memory, KiB
      "pe_len": [32, 32],          // PEs in a row, rows
      "pe_mapping": [["IC"],       // loop spread over the PEs of a row
                     ["OC"]]       // loop spread over the rows
    }

The thesis says nothing about the rest of a machine: words, bias memory, fixed times and the memory
outside of the chip are those of ``setup-a``, the thesis's first set-up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm_npu.sim.errors import MachineError

KEYS = ("bandwidth", "frequency", "mem_size", "pe_len", "pe_mapping")
MAPPINGS = ("IC", "OC", "OH", "OW")
DEEPEST = 2
"""Lists in lists: pe_mapping is one of lists."""
KILOBYTE = 1024
MOST_CHARACTERS = 1 << 16
"""Such a file has some hundred."""
_TOKEN = re.compile(
    r'(?P<blank>[ \t\r\n]+|//[^\n]*)|(?P<text>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<word>[A-Za-z]+)|(?P<mark>[\[\]{}:,])"
)


@dataclass(frozen=True)
class _Value:
    """A JSON value (a list holds such values) and the line on which it begins."""

    value: Any
    line: int


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def eplanner_machine(text: str, origin: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a tile machine file, to be validated as such. ``base`` are those of the machine
    that gives what the thesis leaves open; ``origin`` names the file and gives the machine's name.

    Raises MachineError with the line for text that is no JSON, for missing, unknown and repeated
    keys, unknown mappings and numbers out of range.
    """
    return _Reader(text, origin).machine(base)


class _Reader:
    def __init__(self, text: str, origin: str) -> None:
        self.origin = origin
        if len(text) > MOST_CHARACTERS:
            raise self.fail(1, f"a text of {len(text)} characters; at most {MOST_CHARACTERS}")
        self.tokens = list(self._split(text))
        self.at = 0

    def fail(self, line: int, message: str) -> MachineError:
        return MachineError(f"machine file {self.origin}, line {line}: {message}")

    def _split(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.fail(line, f"not JSON: unexpected {text[at]!r}")
            kind = str(found.lastgroup)
            if kind != "blank":
                yield _Token(kind, found.group(), line)
            line += found.group().count("\n")
            at = found.end()
        yield _Token("end", "the end of the file", line)

    def take(self, *expected: str) -> _Token:
        token = self.tokens[self.at]
        if expected and token.text not in expected:
            wanted = " or ".join(repr(mark) for mark in expected)
            raise self.fail(token.line, f"not JSON: {token.text!r} where {wanted} is expected")
        self.at += 1
        return token

    def value(self, depth: int = 0) -> _Value:
        token = self.take()
        if depth > DEEPEST:
            raise self.fail(token.line, f"lists in lists; {DEEPEST} deep is possible")
        if token.text == "[" and token.kind == "mark":
            items: list[_Value] = []
            while self.tokens[self.at].text != "]":
                if items:
                    self.take(",")
                items.append(self.value(depth + 1))
            self.take("]")
            return _Value(items, token.line)
        if token.kind in ("text", "number", "word"):
            try:
                return _Value(json.loads(token.text), token.line)
            except ValueError:  # its own, and that of a number of thousands of digits
                pass
        raise self.fail(token.line, f"not JSON: {token.text!r} where a value is expected")

    def members(self) -> tuple[dict[str, _Value], int]:
        """Values by key, and the last line."""
        self.take("{")
        found: dict[str, _Value] = {}
        while self.tokens[self.at].text != "}":
            if found:
                self.take(",")
            key = self.take()
            if key.kind != "text":
                raise self.fail(key.line, f"not JSON: {key.text!r} where a key is expected")
            try:
                name = json.loads(key.text)
            except ValueError:
                text = f"not JSON: {key.text!r} where a key is expected"
                raise self.fail(key.line, text) from None
            if name not in KEYS:
                known = ", ".join(KEYS)
                raise self.fail(key.line, f"unknown key {name!r}; the keys are {known}")
            if name in found:
                raise self.fail(key.line, f"key {name!r} is given twice")
            self.take(":")
            found[name] = self.value()
        line = self.take("}").line
        rest = self.tokens[self.at]
        if rest.kind != "end":
            raise self.fail(rest.line, f"not JSON: {rest.text!r} behind the last }}")
        return found, line

    def machine(self, base: Mapping[str, Any]) -> dict[str, Any]:
        found, last_line = self.members()
        missing = [key for key in KEYS if key not in found]
        if missing:
            raise self.fail(last_line, f"missing keys: {', '.join(missing)}")
        bandwidth = self.number("bandwidth", found["bandwidth"], "GB/s", 0.001, 1e5)
        frequency = self.number("frequency", found["frequency"], "GHz", 0.001, 100)
        memories = [
            self.number("mem_size", one, "KiB", 1, 16384)
            for one in self.items("mem_size", found["mem_size"], 3, "input, weight and output KiB")
        ]
        for size, one in zip(memories, found["mem_size"].value, strict=True):
            if size * KILOBYTE % 8:
                raise self.fail(one.line, f"mem_size: {size} KiB is no multiple of 8 bytes")
        lengths = self.items("pe_len", found["pe_len"], 2, "width and height")
        width, height = (self.whole("pe_len", one, 1, 1 << 16) for one in lengths)
        columns, rows = (
            self.mapping(one)
            for one in self.items("pe_mapping", found["pe_mapping"], 2, "columns and rows")
        )
        if columns.value == rows.value:
            raise self.fail(
                rows.line, f"pe_mapping: {rows.value!r} for columns and rows; they take different "
                "loops",
            )  # fmt: skip
        stem = re.sub(r"[^A-Za-z0-9._-]", "-", re.split(r"[/\\]", self.origin)[-1])
        return {
            **base,
            "name": stem.removesuffix(".json")[:64] or "eplanner",
            "description": "e-PlaNNer's description " + stem,
            "frequency_mhz": 1000.0 * frequency,
            "memories": {
                **base["memories"],
                "input_bytes": int(memories[0] * KILOBYTE),
                "weight_bytes": int(memories[1] * KILOBYTE),
                "output_bytes": int(memories[2] * KILOBYTE),
            },
            "array": {
                **base["array"], "width": width, "height": height,
                "column_mapping": columns.value, "row_mapping": rows.value,
            },
            "mover": {**base["mover"], "bytes_per_cycle": bandwidth / frequency},
        }  # fmt: skip

    def items(self, key: str, found: _Value, count: int, what: str) -> list[_Value]:
        if not isinstance(found.value, list) or len(found.value) != count:
            raise self.fail(found.line, f"{key}: expected a list of {count} ({what})")
        return found.value

    def number(self, key: str, found: _Value, unit: str, low: float, high: float) -> float:
        value = found.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(found.line, f"{key}: expected a number, found {_shown(value)}")
        if not low <= value <= high:
            shown = _shown(value)
            raise self.fail(found.line, f"{key} = {shown} {unit}; from {low:g} to {high:g}")
        return float(value)

    def whole(self, key: str, found: _Value, low: int, high: int) -> int:
        value = found.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(
                found.line, f"{key}: expected an integer from {low} to {high}, found "
                f"{_shown(value)}",
            )  # fmt: skip
        return value

    def mapping(self, found: _Value) -> _Value:
        """The one loop of a list of loops; more than one would be a choice at run time."""
        (name,) = self.items("pe_mapping", found, 1, "one loop each for columns and rows")
        if name.value not in MAPPINGS:
            known = ", ".join(MAPPINGS)
            raise self.fail(
                name.line, f"pe_mapping: unknown mapping {_shown(name.value)}; known are {known}"
            )
        return name


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
