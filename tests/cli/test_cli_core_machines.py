"""compile, profile and disasm for machines with a core and a DMA controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tvm_npu.codegen.program.format import Program

pytest.importorskip("tvm.relay", exc_type=ImportError)

pytestmark = pytest.mark.relay

MACHINES = ("zynq-7020", "zynq-7020-uncached")


@pytest.mark.parametrize("machine", MACHINES)
def test_from_a_model_to_a_listing(
    machine: str, run, make_onnx: Callable[..., Path], tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    model = make_onnx(["Conv", "Relu", "Conv"])
    target = tmp_path / "profile.json"
    code, out, err = run("profile", model, "--machine", machine, "--json", target)
    assert code == 0, err
    found = json.loads(target.read_text())
    assert found["totals"]["cycles"] > 0 and len(found["layers"]) == 2
    assert all(layer["loaded_bytes"]["in"] > 0 for layer in found["layers"])

    folder = tmp_path / "programs"
    code, out, err = run("compile", model, "--machine", machine, "-o", folder)
    assert code == 0, err
    (path,) = folder.iterdir()
    assert Program.from_file(path).machine_description().name == machine
    code, out, err = run("disasm", path)
    assert code == 0, err
    assert out.count("tgo ") >= 5 and "twait " in out and "tload" not in out
