"""Which TVM the Relax door takes."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tvm_npu.door.find import door
from tvm_npu.errors import ComparisonError, DoorError, MissingTorchError, PartitionError

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")


def test_another_tvm_is_refused_with_what_helps() -> None:
    if door().name == "relax":
        pytest.skip("the installed TVM is the right one")
    with pytest.raises(DoorError, match=r"needs TVM 0.26 or later, not 0.19.*tvm_npu.relay is for"):
        importlib.import_module("tvm_npu.relax")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("0.25.0", "drops the weights"), ("0.22.1", "its Relax is another one")],
)
def test_older_releases_are_refused_with_the_reason(
    version: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if door().name != "relax":
        pytest.skip("the installed TVM has no Relax that could be used")
    from tvm_npu.relax.environment import prepare

    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(DoorError, match=f"not {version}.*{reason}.*pip install"):
        prepare()


def test_without_torch_its_models_are_refused_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if door().name != "relax":
        pytest.skip("the installed TVM reads no models of torch.export")
    from tvm_npu.relax import frontend

    monkeypatch.setattr(frontend, "find_spec", lambda name: None)
    with pytest.raises(MissingTorchError, match=r"needs torch.*pip install '\.\[torch\]'"):
        frontend.from_exported_program(object())
    monkeypatch.setattr(frontend, "find_spec", lambda name: object())
    with pytest.raises(PartitionError, match="got a list; expected a torch.export.Ex"):
        frontend.from_exported_program([])


def test_the_migration_page_runs() -> None:
    """Its examples for the door of the installed TVM; that with torch where there is one."""
    page = (Path(__file__).parents[2] / "MIGRATING.md").read_text("utf-8")
    blocks = [
        text.split("```")[0]
        for text in page.split("```python\n")[1:]
        if f"tvm_npu.{door().name} import" in text
    ]
    assert blocks
    for block in blocks:
        if "import torch" in block and find_spec("torch") is None:
            continue
        result = subprocess.run(
            [sys.executable, "-c", block], cwd=Path(__file__).parents[2], capture_output=True,
            text=True,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "100.0%" in result.stdout


def test_no_tuning_beside_a_crashing_ffi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if door().name != "relax":
        pytest.skip("the installed TVM has no Relax that could be used")
    from tvm_npu.relax import stock_tuning

    monkeypatch.setattr(stock_tuning.metadata, "version", lambda name: "0.1.15.post2")
    with pytest.raises(ComparisonError, match=r"ffi 0\.1\.15\.post2, .* pip install 'apache-tvm"):
        stock_tuning.tune(None, {}, None, 1, tmp_path)
