"""Changes of bytes and text, and numbers that tend to break things."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TypeVar

Part = TypeVar("Part")
Change = Callable[[random.Random, bytes], bytes]

EDGES = tuple(
    sorted({
        sign * (1 << power) + more
        for power in (0, 1, 3, 7, 8, 12, 15, 16, 18, 20, 24, 28, 30, 31, 32)
        for more in (-1, 0, 1) for sign in (1, -1)
    })
)  # fmt: skip
WORDS = (
    b"\0", b"\xff\xff\xff\xff", b"nan", b"inf", b"-1", b"1e999", b"null", b"[", b"{", b'"', b".",
    b",", b"\n", b"\r", b"=", b"0x", b"\xe2\x80\xae", b"\x1b[2J", b"true", b"'''", b"#", b"(", b")",
    b"99999999999999999999", b"0" * 5000, b"a.", b"\\u0000",
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def edge(rng: random.Random, bits: int = 32) -> int:
    """A number of at most so many bits, signed."""
    if rng.random() < 0.5:
        value = rng.choice(EDGES)
    else:
        value = rng.getrandbits(rng.randint(1, bits))
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _flip(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _cut(rng: random.Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data))
    return data[:begin] + data[begin + rng.randint(1, 1 + len(data) // 4) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    begin = rng.randrange(len(data))
    piece = data[begin : begin + rng.randint(1, 64)]
    return data[:begin] + piece * rng.choice((2, 3, 100, 20_000)) + data[begin:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at, word = rng.randrange(len(data)), rng.choice(WORDS)
    return data[:at] + word * rng.choice((1, 1, 1, 2, 1000)) + data[at:]


def _number(rng: random.Random, data: bytes) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return _flip(rng, data)
    place = rng.choice(places)
    value = str(edge(rng, 64)).encode() if rng.random() < 0.9 else b"9" * 6000
    return data[: place.start()] + value + data[place.end() :]


def _swap_lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


_CHANGES: tuple[Change, ...] = (_flip, _cut, _repeat, _insert, _number, _number, _swap_lines)


def changed(rng: random.Random, data: bytes, most: int = 1 << 20) -> bytes:
    """``data`` after some changes, at most ``most`` bytes long."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        data = rng.choice(_CHANGES)(rng, data or b"\0")[:most]
    return data


def changed_parts(
    rng: random.Random, data: bytes, most: int, parts_of: Callable[[bytes], list[Part]],
    change: Callable[[random.Random, list[Part]], None], file_of: Callable[[list[Part]], bytes],
    begin: int,
) -> bytes:  # fmt: skip
    """A file that ``parts_of`` takes apart and ``file_of`` puts together, with some of its parts
    changed; now and then its bytes (at most ``most``), or an end too early, behind ``begin``."""
    if rng.random() < 0.2:
        return changed(rng, data, most)
    parts = parts_of(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        change(rng, parts)
    whole = file_of(parts)
    return whole[: rng.randrange(begin, len(whole))] if rng.random() < 0.05 else whole
