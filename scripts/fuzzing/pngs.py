"""PNG files: small ones of each sort, and changes of their chunks with right sums around them."""

from __future__ import annotations

import io
import random
import struct
import zlib
from functools import lru_cache

import numpy as np

from fuzzing.mutation import changed, changed_parts, edge

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_NAMES = (
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB",
    b"tEXt", b"zTXt", b"iTXt", b"bKGD", b"hIST", b"pHYs", b"tIME", b"eXIf", b"acTL", b"fcTL",
    b"fdAT", b"IDOT", b"idat", b"\0\0\0\0", b"\xff\xff\xff\xff",
)  # fmt: skip
_EXTENTS = (0, 1, 2, 5, 6, 7, 8, 300, 8192, 13_000, 65_535, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2))  # fmt: skip
"""First column and row of each pass, and the steps from one to the next."""
MOST_REPEATS = 200
MOST_BYTES = 1 << 16

Chunk = tuple[bytes, bytes]
"""Name and content."""


@lru_cache(maxsize=1)
def pngs() -> tuple[bytes, ...]:
    """Of 6 x 6 pixels: colour, grey, one bit, a palette, with alpha, with metadata, two frames,
    interlaced."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 4), np.uint8)
    image = Image.fromarray(pixels)
    notes = PngInfo()
    notes.add_text("Title", "fuzz")
    notes.add_text("Comment", "fuzz" * 9, zip=True)
    notes.add_itxt("Author", "fuzz", "en", "Autor", zip=True)
    turned = Image.Exif()
    turned[0x0112] = 6
    found = []
    for mode, options in (
        ("RGB", {}), ("L", {}), ("1", {}), ("P", {"transparency": 3}), ("LA", {}), ("RGBA", {}),
        ("RGB", {"transparency": (1, 2, 3)}),
        ("RGB", {"pnginfo": notes, "exif": turned, "icc_profile": bytes(128), "dpi": (72, 72)}),
        ("RGB", {"save_all": True, "append_images": [image.convert("RGB").rotate(90)]}),
    ):  # fmt: skip
        file = io.BytesIO()
        image.convert(mode).save(file, "PNG", **options)
        found.append(file.getvalue())
    return (*found, _interlaced(pixels[:, :, :3]))


def _interlaced(pixels: np.ndarray) -> bytes:
    rows, columns, _ = pixels.shape
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 1)
    passes = [pixels[y::down, x::across] for x, y, across, down in _ADAM7]
    lines = b"".join(b"\0" + line.tobytes() for one in passes if one.size for line in one)
    return file_of([(b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")])


def chunks_of(data: bytes) -> list[Chunk]:
    """Those of a good file."""
    chunks, at = [], len(_SIGNATURE)
    while at < len(data):
        behind = at + 8 + int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : behind]))
        at = behind + 4
    return chunks


def file_of(chunks: list[Chunk]) -> bytes:
    """With the length and the sum of each chunk."""
    return _SIGNATURE + b"".join(
        len(content).to_bytes(4, "big") + name + content
        + zlib.crc32(name + content).to_bytes(4, "big")
        for name, content in chunks
    )  # fmt: skip


def changed_png(rng: random.Random, data: bytes) -> bytes:
    """A file with some of its chunks changed; now and then its bytes, or an end too early."""
    return changed_parts(rng, data, MOST_BYTES, chunks_of, _change, file_of, len(_SIGNATURE))


def _change(rng: random.Random, chunks: list[Chunk]) -> None:
    at = rng.randrange(len(chunks))
    name, content = chunks[at]
    choice = rng.random()
    if choice < 0.25:
        _head(rng, chunks)
    elif choice < 0.45:
        chunks[at] = name, changed(rng, content, MOST_BYTES)
    elif choice < 0.65:
        _packed(rng, chunks)
    elif choice < 0.75:
        chunks[at] = rng.choice(_NAMES), content
    elif choice < 0.85:
        chunks[at:at] = [chunks[at]] * rng.choice((1, 2, MOST_REPEATS))
    elif choice < 0.92 and len(chunks) > 1:
        del chunks[at]
    else:
        chunks.insert(rng.randrange(len(chunks)), chunks.pop(at))


def _head(rng: random.Random, chunks: list[Chunk]) -> None:
    """Extents, bits, colours, ways to pack, filter and interlace."""
    heads = [k for k, (name, content) in enumerate(chunks) if name == b"IHDR" and len(content) > 12]
    if not heads:
        return
    at = rng.choice(heads)
    head = bytearray(chunks[at][1])
    choice = rng.random()
    if choice < 0.5:
        for place in rng.choice(((0,), (4,), (0, 4))):
            value = rng.choice(_EXTENTS) if rng.random() < 0.8 else edge(rng) & 0xFFFF_FFFF
            head[place : place + 4] = value.to_bytes(4, "big")
    elif choice < 0.7:
        head[8] = rng.choice((0, 1, 2, 4, 8, 16, 255))
    elif choice < 0.9:
        head[9] = rng.choice((0, 2, 3, 4, 6, 1, 255))
    else:
        head[rng.randrange(10, 13)] = rng.choice((0, 1, 2, 255))
    chunks[at] = b"IHDR", bytes(head)


def _packed(rng: random.Random, chunks: list[Chunk]) -> None:
    """What is compressed, pixels or texts, with other bytes and the sum of these; in several chunks
    now and then."""
    places = [k for k, chunk in enumerate(chunks) if _packed_from(chunk) is not None]
    if not places:
        return
    at = rng.choice(places)
    name, content = chunks[at]
    begin = _packed_from(chunks[at])
    assert begin is not None
    plain = bytearray(zlib.decompress(content[begin:]))
    if name == b"IDAT" and plain and rng.random() < 0.3:
        row = rng.randrange(0, len(plain), max(1, len(plain) // 6))
        plain[row] = rng.choice((1, 2, 3, 4, 5, 255))  # its filter
    else:
        plain[:] = changed(rng, bytes(plain), MOST_BYTES)
    packed = content[:begin] + zlib.compress(bytes(plain), rng.choice((0, 1, 9)))
    cut = rng.randrange(len(packed)) if name == b"IDAT" and rng.random() < 0.3 else 0
    chunks[at : at + 1] = [(name, one) for one in (packed[:cut], packed[cut:]) if one]


def _packed_from(chunk: Chunk) -> int | None:
    """Where bytes begin in a chunk that unpack to others."""
    name, content = chunk
    begin = 0
    if name in (b"zTXt", b"iCCP"):
        begin = content.find(b"\0") + 2
    elif name == b"fdAT":
        begin = 4
    elif name != b"IDAT":
        return None
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(content[begin:], MOST_BYTES + 1)
    except zlib.error:
        return None
    return begin if unpacker.eof and len(whole) <= MOST_BYTES else None
