"""PNG files that the fuzzer changes: what is changed lies behind right sums."""

from __future__ import annotations

import io
import random
import zlib

import pytest

pytest.importorskip("tvm", reason="the readers of calibration files need the door")

from fuzzing.pngs import changed_png, chunks_of, file_of, pngs  # noqa: E402
from PIL import Image  # noqa: E402

Chunks = list[tuple[bytes, bytes]]


def chunks_with_right_sums(data: bytes) -> Chunks | None:
    """None where a length or a sum is not that of its chunk."""
    chunks, at = [], 8
    while at < len(data):
        behind = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if zlib.crc32(data[at + 4 : behind]).to_bytes(4, "big") != data[behind : behind + 4]:
            return None
        chunks.append((data[at + 4 : at + 8], data[at + 8 : behind]))
        at = behind + 4
    return chunks


def pixels_of(chunks: Chunks) -> bytes | None:
    """What the IDAT chunks unpack to; None where they do not."""
    try:
        return zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    except zlib.error:
        return None


@pytest.mark.parametrize("data", pngs())
def test_good_files_are_taken_apart_and_put_together(data: bytes) -> None:
    assert file_of(chunks_of(data)) == data
    assert chunks_with_right_sums(data) == chunks_of(data)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.size == (6, 6)


def test_interlaced_pixels_are_those_of_the_same_image() -> None:
    plain, interlaced = pngs()[0], pngs()[-1]
    assert chunks_of(interlaced)[0][1][12] == 1
    found = [Image.open(io.BytesIO(data)).convert("RGB") for data in (plain, interlaced)]
    assert found[0].tobytes() == found[1].tobytes()


def test_changes_have_right_sums() -> None:
    """Most of them: of heads, other chunks and pixels, which unpack to other ones."""
    changes, right, heads, pixels = 2000, 0, 0, 0
    for seed in range(changes):
        rng = random.Random(seed)
        good = rng.choice(pngs())
        before, after = chunks_of(good), chunks_with_right_sums(changed_png(rng, good))
        if after is None or after == before:
            continue
        right += 1
        heads += [one for one in after if one[0] == b"IHDR"] != before[:1]
        pixels += pixels_of(after) not in (None, pixels_of(before))
    assert right > 0.6 * changes and heads > 0.15 * changes and pixels > 0.1 * changes
