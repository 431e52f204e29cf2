"""The command line on Snowflake machines: images apart, recurrent models, what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_cli_errors import failing
from tests.cli.test_cli_profile import profiled

pytest.importorskip("tvm.relay", exc_type=ImportError)
pytestmark = pytest.mark.relay


def test_images_apart_bring_weights_once(run, tmp_path, make_onnx: Callable[..., Path]) -> None:  # type: ignore[no-untyped-def]
    model = make_onnx(["Conv", "Relu"], ("N", 3, "H", "W"))
    given = ("--shape", "x=8,3,9,10", "--machine", "snowflake-4cc", "--planner", "snowflake")
    found = {
        images: profiled(run, tmp_path, model, *given, "--images", images)[2]
        for images in ("together", "apart")
    }
    loaded = {images: one["layers"][0]["loaded_bytes"] for images, one in found.items()}
    assert loaded["together"]["weight"] == 4 * loaded["apart"]["weight"] > 0
    for one in found.values():
        assert (one["images_per_run"], one["machine"]) == (8, "snowflake-4cc")
    assert found["apart"]["totals"]["cycles"] < found["together"]["totals"]["cycles"]


@pytest.mark.parametrize("machine", ["snowflake-1cc", "nmp-4x8"])
def test_images_apart_need_clusters(run, lenet: Path, machine: str) -> None:  # type: ignore[no-untyped-def]
    message = failing(run, 1, "profile", lenet, "--machine", machine, "--images", "apart")
    assert f"option images: images apart: machine '{machine}' computes one image" in message
    message = failing(run, 2, "profile", lenet, "--images", "beside")
    assert "--images: invalid choice: 'beside' (choose from" in message


def test_one_count_of_macs(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Products with padding count in the placement, in the layers and in the totals alike, though
    Snowflake leaves them out."""
    onnx = pytest.importorskip("onnx")
    from tvm_npu import models

    model = models.build("resnet18", input_size=32, width=0.125)
    onnx.save(model, tmp_path / "small.onnx")
    out, _, found = profiled(run, tmp_path, tmp_path / "small.onnx", "--machine", "snowflake-1cc")
    total = found["split"]["npu_macs"]
    assert total == found["totals"]["macs"] == sum(one["macs"] for one in found["layers"]) > 0
    assert out.count(f"{total:,}") >= 2


def test_recurrent_models(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    onnx = pytest.importorskip("onnx")
    from tvm_npu import models

    model = models.build_recurrent("lstm", hidden=4, features=3, steps=2, layers=1)
    onnx.save(model, tmp_path / "lstm.onnx")
    out, _, found = profiled(run, tmp_path, tmp_path / "lstm.onnx", "--machine", "snowflake-1cc")
    rows: list[tuple[Any, ...]] = [(one["name"], one["kind"]) for one in found["layers"]]
    assert rows == [("lstm1", "lstm")]
    assert found["split"]["npu_macs"] == models.macs(model) and not found["split"]["cpu_operators"]
    assert "NPU: 100.0 % of the MACs" in out
