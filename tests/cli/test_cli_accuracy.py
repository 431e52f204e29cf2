"""tvm-npu accuracy, and what profile and calibration say about accuracy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm_npu.accuracy.images import PRESETS, Arithmetic, read_labels  # noqa: E402
from tvm_npu.door.find import door  # noqa: E402
from tvm_npu.errors import AccuracyError  # noqa: E402
from tvm_npu.models.data import load_digits  # noqa: E402

pytestmark = pytest.mark.relay


def test_digits_in_int8(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    images, labels = load_digits()
    np.savez(tmp_path / "digits.npz", images=images[:60] / 2, labels=labels[:60])
    target = tmp_path / "accuracy.json"
    code, out, err = run(
        "accuracy", lenet, "--images", tmp_path / "digits.npz", "--scale", 2, "--precision", "int8",
        "--quantization", "bias-corrected", "--json", target, "--limit", 50,
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(target.read_text())
    assert (found["images"], found["labelled"], found["simulated"]) == (50, 50, 1)
    assert abs(found["top1_npu"] - found["top1_float"]) <= 1 and found["top1_float"] >= 45
    assert found["agreement"] >= 48 and found["sqnr_db"] > 15 and found["cycles"] > 0
    assert f"top-1: {found['top1_npu'] / 50:.3f} ({found['top1_npu']} of 50), float" in out
    assert "ranges come from the first 16 images" in err
    (region,) = found["regions"]
    own = [layer["own_db"] for layer in region["layers"] if layer["own_db"] is not None]
    assert own == sorted(own) and {"accumulated_db", "clipped_share", "advice"} <= set(
        region["layers"][0]
    )
    assert all(layer["layer"] in out for layer in region["layers"])
    code, _, err = run(
        "accuracy", lenet, "--images", tmp_path / "digits.npz", "--scale", 2, "--precision", "int8",
        "--quantization", "bias-corrected", "--json", target, "--limit", 50, "--workers", 2,
        "--limits", "work=1g,host_bytes=4g",
    )  # fmt: skip
    assert code == 0 and json.loads(target.read_text()) == found, err


def test_what_the_simulator_may_take(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    images, labels = load_digits()
    np.savez(tmp_path / "digits.npz", images=images[:1], labels=labels[:1])
    code, _, err = run(
        "accuracy", lenet, "--images", tmp_path / "digits.npz", "--limits", "host_bytes=1k"
    )
    assert code == 1 and "bytes, limit host_bytes allows 1024; raise it" in err
    assert "ranges come from the first image\n" in err
    assert "unexpected" not in err


def test_how_many_images_ranges_come_from(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    images, labels = load_digits()
    np.savez(tmp_path / "digits.npz", images=images[:5], labels=labels[:5])
    code, _, err = run(
        "accuracy", lenet, "--images", tmp_path / "digits.npz", "--layer-samples", 0,
        "--simulated", 0,
    )  # fmt: skip
    assert code == 0 and "ranges come from the first 5 images\n" in err, err


def test_a_folder_with_labels(  # type: ignore[no-untyped-def]
    run, make_onnx: Callable[..., Path], tmp_path: Path
) -> None:
    model = make_onnx(["Conv", "GlobalAveragePool", "Flatten"])
    folder = tmp_path / "images"
    folder.mkdir()
    generator = np.random.default_rng(1)
    for name in "abc":
        np.save(folder / f"{name}.npy", generator.standard_normal((3, 8, 8)).astype(np.float32))
    labels = tmp_path / "labels.csv"
    labels.write_text("name,file,label\nx,images/a.npy,0\nx,b,3\n")
    code, _, err = run("accuracy", model, "--images", folder, "--labels", labels)
    assert code == 1 and "has no label for 'c.npy'" in err
    labels.write_text("a,0\nb,3\nc,1\n")
    code, out, err = run("accuracy", model, "--images", folder, "--labels", labels)
    assert code == 0 and "of 3), float" in out and "same class as float: 3 of 3" in out, err
    code, _, err = run("accuracy", model, "--images", folder, "--mean", 1, 2)
    assert code == 1 and "--mean has 2 numbers; images have 3 channels" in err


def test_models_that_workers_cannot_get(  # type: ignore[no-untyped-def]
    run, lenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before there are workers."""
    monkeypatch.setattr(type(door()), "modules_pickle", False)
    monkeypatch.setattr("tvm_npu.cli.engine_arguments.engine_of", lambda *_: pytest.fail("workers"))
    images, labels = load_digits()
    np.savez(tmp_path / "digits.npz", images=images[:4], labels=labels[:4])
    code, _, err = run("accuracy", lenet, "--images", tmp_path / "digits.npz", "--workers", 2)
    assert code == 1 and "models of TVM's door 'relay' cannot be sent to workers" in err


def test_a_preset_for_colour_images_is_named(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    np.savez(tmp_path / "digits.npz", images=load_digits()[0][:2])
    for preset in ("imagenet", "caffe"):
        for command, option in (("accuracy", "--images"), ("profile", "--calibration")):
            code, _, err = run(command, lenet, option, tmp_path / "digits.npz", "--preset", preset)
            assert code == 1 and (
                f"error: preset '{preset}' has 3 numbers of mean, one a channel; images have 1 "
                "channel: give preset zero-to-one or minus-one-to-one, or scale, mean and std"
            ) in err
    assert {name: one.preset for name, one in PRESETS.items()} == {name: name for name in PRESETS}
    assert str(PRESETS["zero-to-one"]) == str(Arithmetic(1 / 255))


def test_arithmetic_and_labels(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(1, 3, 1, 2)
    made = Arithmetic(2.0, (1.0, 2.0, 3.0), (0.5,), bgr=True).apply(x, 1)
    assert made[0, :, 0, 0].tolist() == [(8 - 1) / 0.5, (4 - 2) / 0.5, (0 - 3) / 0.5]
    (tmp_path / "bad.csv").write_text("file,label\na.png,cat\n")
    with pytest.raises(AccuracyError, match="label 'cat' is no whole number"):
        read_labels(tmp_path / "bad.csv")
    (tmp_path / "empty.csv").write_text("\n")
    with pytest.raises(AccuracyError, match="holds no labels"):
        read_labels(tmp_path / "empty.csv")


def test_profile_says_the_output_sqnr(  # type: ignore[no-untyped-def]
    run, make_onnx: Callable[..., Path], tmp_path: Path
) -> None:
    model = make_onnx(["Conv", "Relu"])
    values = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=values)
    target = tmp_path / "profile.json"
    code, out, _ = run("profile", model, "--calibration", tmp_path / "x.npz", "--json", target)
    assert code == 0 and json.loads(target.read_text())["output_sqnr_db"] > 60
    assert "output SQNR on calibration data: " in out
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    code, _, err = run("profile", model, "--calibration", tmp_path / "x.npz")
    assert code == 0 and "input 'x' takes only the values 0 in 2 samples" in err


def test_profile_notes_a_low_sqnr(  # type: ignore[no-untyped-def]
    run, make_onnx: Callable[..., Path], tmp_path: Path
) -> None:
    """One value a million times larger than the others leaves these no digits."""
    model = make_onnx(["Conv", "Conv", "Conv"])
    values = np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype(np.float32)
    values[2] *= 1e6
    np.savez(tmp_path / "x.npz", x=values[[0, 1, 0, 1, 2]])
    arguments = ("--calibration", tmp_path / "x.npz", "--precision", "int8")
    code, _, err = run("profile", model, *arguments)
    assert code == 0 and "is below 15 dB" in err
    told = r"the values of \S+ \(root mean square (\S+)\) are below one step .* \((\S+)\), so"
    (figures,) = re.findall(told, err)
    assert 0 < float(figures[0]) < float(figures[1])
