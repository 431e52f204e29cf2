"""Files of labelled images: what they give, and typed errors for what is wrong with them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_npu.accuracy import images as reader
from tvm_npu.accuracy.images import LabelledImages, Preparation, read_labels
from tvm_npu.calibration import InputSpec
from tvm_npu.errors import AccuracyError, ImagesLeftOutWarning

INPUT = (InputSpec("x", (2, 1, 4, 5), "float32"),)
IMAGES = np.arange(80.0).reshape(4, 1, 4, 5)


def read(path: Path, inputs: tuple[InputSpec, ...] = INPUT) -> list[Any]:
    return list(LabelledImages(path, inputs, Preparation()))


def test_labels_by_file_are_refused_for_an_array_of_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES)
    (tmp_path / "labels.csv").write_text("a,1\n")
    images = LabelledImages(tmp_path / "a.npz", INPUT, Preparation(), tmp_path / "labels.csv")
    with pytest.raises(AccuracyError, match="by file name; .*a.npz' holds many images"):
        next(iter(images))


def test_images_that_do_not_fill_a_batch_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.concatenate([IMAGES, IMAGES[:1]]))
    with pytest.warns(ImagesLeftOutWarning, match="1 of the 5 images of .*a.npz.* batch of 2"):
        assert len(read(tmp_path / "a.npz")) == 2
    np.savez(tmp_path / "a.npz", images=IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(tmp_path / "a.npz")) == 2


@pytest.mark.parametrize("labels", [[3, 1, 2, 0], [3.0, 1.0, 2.0, 0.0]])
def test_arrays_of_images_and_labels(labels: list[float], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=np.array(labels))
    first, second = read(tmp_path / "a.npz")
    assert (first.labels, second.labels) == ((3, 1), (2, 0))
    assert all(type(one) is int for one in first.labels)
    np.testing.assert_array_equal(second.sample["x"], IMAGES[2:])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([1.0, np.nan, 2.0, 3.0]), "a.npz': label 1 is nan, no whole number"),
        (np.array([1.0, 2.0, np.inf, 3.0]), "label 2 is inf, no whole number"),
        (np.array([1.0, 2.0, 3.0, 0.5]), "label 3 is 0.5, no whole number"),
        (np.eye(4), r"labels of .*a.npz' have shape \(4, 4\); expected \(4,\)"),
        (np.array(3), r"have shape \(\); expected \(4,\)"),
        (np.array(list("abcd")), "are <U1; expected whole numbers"),
        (np.arange(4) * 1j, "are complex128; expected whole numbers"),
        (np.array([1, 2, 3, None]), "cannot read images .*a.npz'.*allow_pickle"),
        (np.arange(3), "3 labels for 4 images"),
    ],
)
def test_labels_that_are_none(labels: Any, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=labels)
    with pytest.raises(AccuracyError, match=message):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES * 1j, "images of .*a.npz' are complex128; expected real numbers"),
        (IMAGES.astype(str), "are <U32; expected real numbers"),
        (IMAGES.astype(object), "cannot read images .*allow_pickle"),
        (np.array(1.0), r"images have shape \(\); input 'x' takes \(2, 1, 4, 5\)"),
        (IMAGES[0], r"images have shape \(1, 4, 5\); input 'x' takes"),
    ],
)
def test_images_that_are_none(images: Any, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=images)
    with pytest.raises(AccuracyError, match=message):
        read(tmp_path / "a.npz")


def test_inputs_without_extents(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros(4))
    with pytest.raises(AccuracyError, match=r"images have shape \(4,\); input 'x' takes \(\)"):
        read(tmp_path / "a.npz", (InputSpec("x", (), "float32"),))


@pytest.mark.parametrize("end", [0, 40, -30])
def test_damaged_files(end: int, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=IMAGES)
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(AccuracyError, match="cannot read images .*a.npz'"):
        read(path)
    np.savez(path, images=IMAGES)
    content = bytearray(path.read_bytes())
    content[300] ^= 255  # the sum of an array's bytes
    path.write_bytes(content)
    with pytest.raises(AccuracyError, match="cannot read images .*a.npz'"):
        read(path)


def test_labels_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text('file,label\n\n\n"a\nb.png",1\nc.png,1.5\n')
    with pytest.raises(AccuracyError, match=r"labels.csv', line 6: label '1.5' is no whole number"):
        read_labels(path)
    path.write_text("a.png,1\nb.png," + "x" * 200_000 + "\n")
    with pytest.raises(AccuracyError, match=r"labels.csv', line 2: field larger than"):
        read_labels(path)
    path.write_text('\na.png,2\n"b\n.png",7\n')
    (tmp_path / "none").write_bytes(b"PK\xff")
    with pytest.raises(AccuracyError, match=r"none': not text \(byte 2: .*file,label are expected"):
        read_labels(tmp_path / "none")
    assert read_labels(path)["a"] == 2 and read_labels(path)["b\n"] == 7


def test_labels_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "labels.csv"
    monkeypatch.setattr(reader, "MOST_LABEL_VALUES", 8)
    path.write_text("a,1\nb,2\nc,3\nd,4\n")
    assert len(read_labels(path)) == 4
    monkeypatch.setattr(reader.csv, "reader", None)
    for text in ("a,1\n" * 5, "a,1\r" * 5, "a" + "," * 9):
        path.write_text(text)
        with pytest.raises(AccuracyError, match="[0-9]+ values.*; at most 8; keep the labels of"):
            read_labels(path)


@pytest.mark.parametrize("label", ["1_0", "\u0661", "0x1", "1e1", "9" * 19, "7" * 5000, "- 1"])
def test_labels_are_plain_whole_numbers(label: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"a,1\nb,{label}\n", encoding="utf-8")
    with pytest.raises(AccuracyError, match="line 2: label '.* is no whole number of") as found:
        read_labels(path)
    assert len(str(found.value)) < 200 + len(str(path))
    path.write_text(f"a,1\nb, -{'1' * 18} \nc,+2\n")
    assert read_labels(path) == {"a": 1, "b": -int("1" * 18), "c": 2}


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("a.png", "a.jpg"), ("cat/a.png", "dog/a.png")]
)
def test_two_labels_of_a_file(first: str, second: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"{first},-5\nb,1\n{second},6\n")
    with pytest.raises(AccuracyError, match="line 3: label 6 for 'a.*has label -5 in line 1; a"):
        read_labels(path)
    path.write_text(f"{first},6\n{second},6\n")
    assert read_labels(path)["a"] == 6
