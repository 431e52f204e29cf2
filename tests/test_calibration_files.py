"""Calibration folders: what each kind of file holds, and what is wrong with it."""

from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tvm_npu import calibration_files as module
from tvm_npu.accuracy.images import LabelledImages, Preparation
from tvm_npu.calibration import InputSpec, samples_from
from tvm_npu.calibration_files import MOST_IMAGE_BYTES, CalibrationFiles, calibration_files
from tvm_npu.errors import AccuracyError, CalibrationError

GREY = (InputSpec("x", (1, 1, 4, 5), "float32"),)
COLOUR = (InputSpec("x", (1, 3, 4, 5), "float32"),)
CHANNELS_LAST = (InputSpec("x", (1, 4, 5, 3), "float32"),)
TWO = (*GREY, InputSpec("y", (1, 2), "float32"))


def samples(path: Path, inputs: tuple[InputSpec, ...]) -> list[dict[str, np.ndarray]]:
    return list(CalibrationFiles(calibration_files(path), inputs))


def test_a_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.full((2, 1, 4, 5), 2.0))
    np.save(tmp_path / "a.npy", np.full((1, 4, 5), 1.0))
    np.savez(tmp_path / "c.npz", x=np.full((1, 1, 4, 5), 3.0))
    np.savez(tmp_path / "D.NPZ", np.full((1, 1, 4, 5), 0.5))
    (tmp_path / "readme.txt").write_text("left out")
    (tmp_path / "folder.npy").mkdir()
    found = samples(tmp_path, GREY)
    assert [float(sample["x"][0, 0, 0, 0]) for sample in found] == [0.5, 1.0, 2.0, 2.0, 3.0]
    assert all(s["x"].shape == (1, 1, 4, 5) and s["x"].dtype == np.float32 for s in found)


def test_samples_can_be_read_again(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 1, 4, 5)))
    files = CalibrationFiles(calibration_files(tmp_path), GREY)
    assert len(list(files)) == len(list(files)) == 3


def test_images_are_0_to_255_in_the_inputs_layout(tmp_path: Path) -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3) * 4
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    (first,) = samples(path, COLOUR)
    np.testing.assert_array_equal(first["x"][0], pixels.transpose(2, 0, 1))
    (last,) = samples(path, CHANNELS_LAST)
    np.testing.assert_array_equal(last["x"][0], pixels)
    Image.fromarray(pixels[:, :, 0]).save(path)
    (grey,) = samples(path, GREY)
    np.testing.assert_array_equal(grey["x"][0, 0], pixels[:, :, 0])
    assert grey["x"].max() == pixels[:, :, 0].max()


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".JPEG"])
def test_images_are_made_to_fit(tmp_path: Path, suffix: str) -> None:
    """Twice the size, and 6 columns too many on either side: dark, bright in the middle."""
    pixels = np.zeros((8, 22, 3), np.uint8)
    pixels[:, 6:16] = 200
    path = tmp_path / f"a{suffix}"
    Image.fromarray(pixels).save(path, quality=100)
    with pytest.raises(CalibrationError, match="8 rows and 22 columns; .*--fit crop"):
        samples(path, COLOUR)
    (cropped,) = CalibrationFiles((path,), COLOUR, "crop")
    (stretched,) = CalibrationFiles((path,), COLOUR, "stretch")
    assert cropped["x"].shape == stretched["x"].shape == (1, 3, 4, 5)
    assert cropped["x"][..., 1:-1].min() > 180 and stretched["x"][..., 0].max() < 20
    assert stretched["x"][..., 2].min() > 180


def _with_size(data: bytes, rows: int, columns: int) -> bytes:
    """A baseline or progressive JPEG file that says another size."""
    at = max(data.find(b"\xff\xc0\0"), data.find(b"\xff\xc2\0")) + 5
    size = rows.to_bytes(2, "big") + columns.to_bytes(2, "big")
    return data[:at] + size + data[at + 4 :]


def test_images_that_would_take_much_memory_are_refused(tmp_path: Path) -> None:
    """A JPEG file of a few hundred bytes would be gigabytes of grey."""
    path, pixels = tmp_path / "a.jpg", Image.fromarray(np.zeros((4, 5, 3), np.uint8))
    pixels.save(path)
    content = path.read_bytes()
    path.write_bytes(_with_size(content, 300, 400))
    assert len(list(CalibrationFiles((path,), COLOUR, "crop"))) == 1
    path.write_bytes(_with_size(content, 8192, 8193))
    with pytest.raises(CalibrationError, match="has 67,117,056 pixels; at most 67,108,864"):
        list(CalibrationFiles((path,), COLOUR, "crop"))
    Image.new("1", (8193, 8192)).save(tmp_path / "b.png")
    with pytest.raises(CalibrationError, match="has 67,117,056 pixels; at most 67,108,864"):
        list(CalibrationFiles((tmp_path / "b.png",), COLOUR, "stretch"))


def test_images_files_are_not_read_beyond_a_bound(tmp_path: Path) -> None:
    """What stands behind the image of a file is not held, and files beyond all images are left."""
    path = tmp_path / "a.jpg"
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(path)
    os.truncate(path, 1 << 26)
    samples(path, GREY)
    tracemalloc.start()
    assert samples(path, GREY)[0]["x"].shape == (1, 1, 4, 5)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
    for name in ("a.jpg", "a.png"):
        path = path.rename(tmp_path / name)
        os.truncate(path, MOST_IMAGE_BYTES + 1)
        text = f"^cannot read {str(path)!r}: 268435457 bytes; such a file may have 268435456$"
        with pytest.raises(CalibrationError, match=text):
            samples(path, GREY)


def test_scans_are_counted_where_pieces_of_a_file_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in range(2, 9):
        monkeypatch.setattr(module, "_PIECE_BYTES", size)
        file = io.BytesIO(b"\xff\xda\xff\xff\xda\xda..\xff\xda")
        file.seek(3)
        assert module._count(b"\xff\xda", file) == 3 and file.tell() == 3


def test_images_of_very_many_scans_are_refused(tmp_path: Path) -> None:
    """Scans of a few bytes, each of which touches all pixels."""
    path = tmp_path / "a.jpg"
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(path, progressive=True)
    content = path.read_bytes()
    last = content[content.rindex(b"\xff\xda") : -2]
    many = content[:-2] + 2000 * last + content[-2:]
    path.write_bytes(_with_size(many, 4, 5))
    assert len(list(CalibrationFiles((path,), COLOUR))) == 1
    path.write_bytes(_with_size(many, 4096, 4096))
    with pytest.raises(CalibrationError, match=r"16,777,216 pixels in 2,0\d\d scans; .* 1,024 "):
        list(CalibrationFiles((path,), COLOUR, "crop"))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3, 4, 5)])
@pytest.mark.parametrize("name", ["images", "x"])
def test_inputs_without_a_batch_are_refused(
    tmp_path: Path, shape: tuple[int, ...], name: str
) -> None:
    path, spec = tmp_path / "a.npz", InputSpec("x", shape, "float32")
    np.savez(path, **{name: np.ones((2, *shape[1:]) if shape else (), np.float32)})
    refused = (AccuracyError, CalibrationError)
    with pytest.raises(refused, match="a batch of 0|one number|images have shape"):
        list(LabelledImages(path, (spec,), Preparation()))
    if shape and name == "x":
        with pytest.raises(CalibrationError, match="a batch of 0"):
            list(samples_from(path, (spec,)))


def test_several_inputs_take_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((1, 1, 4, 5)), y=np.zeros(2))
    (sample,) = samples(tmp_path, TWO)
    assert sample["y"].shape == (1, 2)
    np.save(tmp_path / "b.npy", np.ones((1, 1, 4, 5)))
    with pytest.raises(CalibrationError, match=r"b\.npy.*feeds one input, but the model has 2"):
        samples(tmp_path, TWO)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"PK\x03\x04 not really", "cannot read"),
        ("a.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'", "cannot read"),
        ("a.npy", b"", "cannot read"),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(20), "cannot read"),
        ("a.png", b"JFIF", "cannot read"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CalibrationError, match=rf"{message} .*{name}"):
        samples(tmp_path, GREY)


def test_truncated_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (4, 5), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CalibrationError, match=r"a\.png"):
        samples(path, GREY)
    path = tmp_path / "b.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random((1, 1, 4, 5)))
    content = bytearray(path.read_bytes())
    content[90:110] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=r"b\.npz"):
        samples(path, GREY)


def test_an_image_whose_palette_is_lost_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("P", (5, 4)).save(path)
    content = path.read_bytes()
    begin = content.index(b"PLTE") - 4
    end = begin + 12 + int.from_bytes(content[begin : begin + 4], "big")
    path.write_bytes(content[:begin] + content[end:])
    for inputs in (GREY, COLOUR):
        with pytest.raises(CalibrationError, match=r"a\.png.*numbers in a palette; it has none"):
            samples(path, inputs)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(CalibrationError, match="not an .npz file"):
        samples(tmp_path, GREY)
    np.save(tmp_path / "a.npz.npy", np.array([object()]), allow_pickle=True)
    (tmp_path / "a.npz").unlink()
    with pytest.raises(CalibrationError, match="allow_pickle"):
        samples(tmp_path, GREY)


def test_images_of_the_wrong_size_or_depth(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((5, 4), np.uint8)).save(path)
    with pytest.raises(CalibrationError, match="5 rows and 4 columns; input 'x' takes 4 rows"):
        samples(path, GREY)
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(path)
    with pytest.raises(CalibrationError, match="16 bits a channel"):
        samples(path, GREY)
    flat = (InputSpec("x", (1, 20), "float32"),)
    with pytest.raises(CalibrationError, match=r"shape \(1, 20\); an image needs"):
        samples(path, flat)


def test_a_file_of_no_known_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(b"x")
    with pytest.raises(CalibrationError, match="neither a folder nor a file of kind .npy"):
        calibration_files(path)
