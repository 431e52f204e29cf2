"""JPEG files: small ones of each sort, and changes of their segments that keep the others whole."""

from __future__ import annotations

import io
import random
from functools import lru_cache

import numpy as np

from fuzzing.mutation import changed, changed_parts, edge

START, END, SCAN = 0xD8, 0xD9, 0xDA
_FRAMES = (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA, 0xF7)
"""Markers of frames; Pillow knows some of them."""
_MARKERS = (*_FRAMES, 0xC4, 0xC8, 0xCC, 0xD9, SCAN, 0xDB, 0xDC, 0xDD, 0xE0, 0xE1, 0xE2, 0xED, 0xEE,
            0xFE, 0x01, 0xD0)  # fmt: skip
_EXTENTS = (0, 1, 2, 5, 6, 7, 8, 16, 17, 300, 8192, 13_000, 65_500, 65_535)
_SAMPLING = (0x11, 0x11, 0x21, 0x22, 0x41, 0x44, 0x00, 0x13, 0xFF)
MOST_SCANS = 200
MOST_BYTES = 1 << 16

Piece = tuple[int, bytes, bytes]
"""Marker, content of its segment without the length, and the entropy-coded bytes behind it."""


@lru_cache(maxsize=1)
def jpegs() -> tuple[bytes, ...]:
    """Of 6 x 6 pixels: baseline, progressive, subsampled with restarts, grey, in four colours, with
    metadata."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    image = Image.fromarray(pixels)
    turned = Image.Exif()
    turned[0x0112] = 6
    found = []
    for mode, options in (
        ("RGB", {"subsampling": 0}), ("RGB", {"progressive": True, "quality": 95}),
        ("RGB", {"subsampling": 2, "restart_marker_blocks": 1, "optimize": True}),
        ("L", {}), ("L", {"progressive": True}), ("CMYK", {}),
        ("RGB", {"exif": turned.tobytes(), "comment": b"fuzz", "icc_profile": bytes(128)}),
    ):  # fmt: skip
        file = io.BytesIO()
        image.convert(mode).save(file, "JPEG", **options)
        found.append(file.getvalue())
    return tuple(found)


def pieces_of(data: bytes) -> list[Piece]:
    """What lies between the first and the last marker of a good file."""
    pieces, at = [], 2
    while data[at + 1] != END:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        behind = at + 2 + length
        end = behind
        while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
            end += 1
        pieces.append((marker, data[at + 4 : behind], data[behind:end]))
        at = end
    return pieces


def file_of(pieces: list[Piece]) -> bytes:
    whole = b"".join(
        bytes((0xFF, marker)) + min(len(content) + 2, 0xFFFF).to_bytes(2, "big") + content + coded
        for marker, content, coded in pieces
    )
    return bytes((0xFF, START)) + whole + bytes((0xFF, END))


def changed_jpeg(rng: random.Random, data: bytes) -> bytes:
    """A file with some of its segments changed; now and then its bytes, or an end too early."""
    return changed_parts(rng, data, MOST_BYTES, pieces_of, _change, file_of, 2)


def _change(rng: random.Random, pieces: list[Piece]) -> None:
    at = rng.randrange(len(pieces))
    marker, content, coded = pieces[at]
    choice = rng.random()
    if choice < 0.35:
        _frame(rng, pieces)
    elif choice < 0.55:
        pieces[at] = marker, changed(rng, content, 0xFFFD), coded
    elif choice < 0.65:
        scan = rng.choice([k for k, piece in enumerate(pieces) if piece[2]] or [at])
        one, two, bits = pieces[scan]
        pieces[scan] = one, two, changed(rng, bits, MOST_BYTES)
    elif choice < 0.75:
        pieces[at] = rng.choice(_MARKERS), content, coded
    elif choice < 0.85:
        pieces[at:at] = [pieces[at]] * rng.choice((1, 2, MOST_SCANS))
    elif choice < 0.92 and len(pieces) > 1:
        del pieces[at]
    else:
        pieces.append(pieces.pop(at))


def _frame(rng: random.Random, pieces: list[Piece]) -> None:
    """Precision, extents, components: their number, sampling and tables."""
    frames = [k for k, piece in enumerate(pieces) if piece[0] in _FRAMES and len(piece[1]) > 5]
    if not frames:
        return
    at = rng.choice(frames)
    marker, content, coded = pieces[at]
    head = bytearray(content)
    choice = rng.random()
    if choice < 0.5:
        for place in rng.choice(((1,), (3,), (1, 3))):
            value = rng.choice(_EXTENTS) if rng.random() < 0.8 else edge(rng, 16) & 0xFFFF
            head[place : place + 2] = value.to_bytes(2, "big")
    elif choice < 0.6:
        head[0] = rng.choice((0, 1, 7, 8, 12, 16, 255))
    elif choice < 0.7:
        head[5] = rng.choice((0, 1, 2, 3, 4, 5, 255))
    elif choice < 0.9 and len(head) > 7:
        head[rng.randrange(7, len(head), 3)] = rng.choice(_SAMPLING)
    else:
        marker = rng.choice(_FRAMES)
    pieces[at] = marker, bytes(head), coded
