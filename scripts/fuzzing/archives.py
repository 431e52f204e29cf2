"""Archives of arrays (.npz) whose members are others, with valid sums around them."""

from __future__ import annotations

import io
import random
import zipfile

from fuzzing.mutation import changed, edge

_TYPES = (
    "<f4", "<f8", "<f2", "|i1", "|u1", "<i8", "<u8", ">f4", "|b1", "<c8", "|O", "<U3", "|S5",
    "<M8[s]", "<m8", "|V7", "<f16", "float32", "|V0", "<U0",
)  # fmt: skip
_NAMES = ("images.npy", "labels.npy", "x.npy", "images", "../images.npy", "", "a" * 300, "\0.npy")


def changed_archive(rng: random.Random, data: bytes) -> bytes:
    """An archive with members changed, renamed, doubled or left out; now and then its bytes."""
    if rng.random() < 0.25:
        return changed(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(members))
        name, content = members[at]
        choice = rng.random()
        if choice < 0.65:
            members[at] = name, _changed_array(rng, content)
        elif choice < 0.8:
            members[at] = rng.choice(_NAMES), content
        elif choice < 0.9 or len(members) == 1:
            members.append((name, _changed_array(rng, content)))
        else:
            del members[at]
    file = io.BytesIO()
    packed = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(file, "w", packed) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name or "-"), content, packed)
    return file.getvalue()


def _changed_array(rng: random.Random, content: bytes) -> bytes:
    """An .npy file with another type, shape, order, version or length."""
    begin = content.find(b"{")
    end = content.find(b"\n", begin) + 1
    if begin < 0 or not end or rng.random() < 0.15:
        return changed(rng, content)
    shape = [rng.choice((0, 1, 3, 4, 6, 8, edge(rng, 66))) for _ in range(rng.randint(0, 5))]
    known = rng.choice(((4, 3, 6, 6), (4, 6, 6, 3), (4,), (1, 3, 6, 6)))
    extents = tuple(shape) if rng.random() < 0.6 else known
    order = rng.random() < 0.2
    head = f"{{'descr': {rng.choice(_TYPES)!r}, 'fortran_order': {order}, 'shape': {extents}, }}"
    encoded = head.encode()
    if rng.random() < 0.15:
        encoded = changed(rng, encoded, 1 << 15)
    payload = content[end:] * rng.choice((1, 1, 2, 8))
    if rng.random() < 0.3:
        size = len(payload)
        payload = rng.choice((b"", b"\xff" * size, payload[:7], rng.randbytes(size)))
    size = min(len(encoded) + 1, 0xFFFF)
    version = rng.choice((1, 1, 1, 1, 2, 3, 9))
    length = size.to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes((version, 0)) + length + encoded[: size - 1] + b"\n" + payload
