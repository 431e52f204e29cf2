"""Changes of TensorFlow Lite models: numbers at their places, lengths, fields left out."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuzzing.mutation import changed, edge

MOST_BYTES = 1 << 16
OPERATORS, KINDS, OPTIONS = 161, 20, 127
"""Numbers of operators, of types and of sorts of options are less."""
_EXTENTS = (-1, 0, 1, 2, 3, 5, 6, 7, 8, 36, 64)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e-45, 3e38, 0.5)


@dataclass
class Places:
    """Where numbers stand, by what they are; ``entries`` are those of tables of fields."""

    indices: list[int] = field(default_factory=list)
    extents: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    options: list[int] = field(default_factory=list)
    small: list[int] = field(default_factory=list)
    scales: list[int] = field(default_factory=list)
    zeros: list[int] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


class _Table:
    """Field number k, or None, and all that are there; of a good file."""

    def __init__(self, data: bytes, at: int, places: Places) -> None:
        self.data, self.at, self.places = data, at, places
        begin = at - struct.unpack_from("<i", data, at)[0]
        count = (struct.unpack_from("<H", data, begin)[0] - 4) // 2
        entries = [begin + 4 + 2 * k for k in range(count)]
        self.offsets = [struct.unpack_from("<H", data, entry)[0] for entry in entries]
        places.entries += entries

    def place(self, number: int) -> int | None:
        known = number < len(self.offsets) and self.offsets[number]
        return self.at + self.offsets[number] if known else None

    def vector(self, number: int) -> tuple[int, int]:
        """(first element, count)."""
        place = self.place(number)
        if place is None:
            return 0, 0
        begin = place + _u32(self.data, place)
        self.places.lengths.append(begin)
        return begin + 4, _u32(self.data, begin)

    def table(self, number: int) -> _Table | None:
        place = self.place(number)
        if place is None:
            return None
        return _Table(self.data, place + _u32(self.data, place), self.places)

    def tables(self, number: int) -> Iterator[_Table]:
        begin, count = self.vector(number)
        for at in range(begin, begin + 4 * count, 4):
            yield _Table(self.data, at + _u32(self.data, at), self.places)

    def note(self, kept: list[int], *numbers: int) -> None:
        kept += [place for number in numbers if (place := self.place(number)) is not None]


def places_of(data: bytes) -> Places:
    """By the schema of TensorFlow Lite."""
    found = Places()
    model = _Table(data, _u32(data, 0), found)
    for code in model.tables(1):
        code.note(found.codes, 3)
        code.note(found.small, 0)
    for buffer in model.tables(4):
        begin, count = buffer.vector(0)
        if count:
            found.data.append((begin, count))
    for graph in model.tables(2):
        for number in (1, 2):
            _numbers(graph, number, found.indices)
        for tensor in graph.tables(0):
            _numbers(tensor, 0, found.extents)
            tensor.note(found.small, 1)
            tensor.note(found.indices, 2)
            if (quantization := tensor.table(4)) is not None:
                _numbers(quantization, 2, found.scales)
                _numbers(quantization, 3, found.zeros, 8)
                quantization.note(found.indices, 6)
        for operator in graph.tables(3):
            operator.note(found.indices, 0)
            operator.note(found.small, 3)
            for number in (1, 2):
                _numbers(operator, number, found.indices)
            if (options := operator.table(4)) is not None:
                options.note(found.options, *range(len(options.offsets)))
    return found


def _numbers(table: _Table, number: int, kept: list[int], size: int = 4) -> None:
    begin, count = table.vector(number)
    kept += range(begin, begin + size * count, size)


def changed_tflite(rng: random.Random, data: bytes) -> bytes:
    """A model with some of its numbers changed; now and then its bytes."""
    if rng.random() < 0.15:
        return changed(rng, data, MOST_BYTES)
    found, model = places_of(data), bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(rng, model, found)
    return bytes(model)


def _change(rng: random.Random, model: bytearray, found: Places) -> None:
    choice = rng.random()
    if choice < 0.2:
        _put(rng, model, found.extents, "<i", _extent(rng))
    elif choice < 0.35:
        small = rng.random() < 0.85
        _put(rng, model, found.indices, "<i", rng.randrange(-2, 14) if small else edge(rng))
    elif choice < 0.5:
        _put(rng, model, found.codes, "<i", rng.randrange(OPERATORS))
    elif choice < 0.6:
        _put(rng, model, found.options, "<i", _extent(rng))
    elif choice < 0.65:
        _put(rng, model, found.options, "<b", rng.randrange(-1, 8))
    elif choice < 0.73:
        _put(rng, model, found.small, "<B", rng.randrange(rng.choice((KINDS, OPTIONS))))
    elif choice < 0.78:
        _put(rng, model, found.scales, "<f", rng.choice(_FLOATS))
    elif choice < 0.82:
        _put(rng, model, found.zeros, "<q", rng.choice((-128, 127, 255, 3, edge(rng, 64))))
    elif choice < 0.88:
        _put(rng, model, found.lengths, "<i", rng.randrange(8) if rng.random() < 0.8 else edge(rng))
    elif choice < 0.95:
        begin, count = rng.choice(found.data)
        _put(rng, model, list(range(begin, begin + count // 4 * 4, 4)), "<i", _extent(rng))
    else:
        _put(rng, model, found.entries, "<H", rng.choice((0, 0, 4, 8, rng.getrandbits(16))))


def _extent(rng: random.Random) -> int:
    return rng.choice(_EXTENTS) if rng.random() < 0.85 else edge(rng)


def _put(rng: random.Random, model: bytearray, places: list[int], form: str, value: float) -> None:
    if places:
        struct.pack_into(form, model, rng.choice(places), value)
