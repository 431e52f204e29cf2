"""`tvm-npu ir` and `tvm-npu run-ir`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.codegen.tiles.test_ir import TEXT
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tiles.ir import texts
from tvm_npu.codegen.tiles.ir.read import read_ir

ACCELERATOR = """{
  "bandwidth": 1.6, "frequency": 1.2,  // GB/s, GHz
  "mem_size": [368, 288, 144],
  "pe_len": [32, 32],
  "pe_mapping": [["IC"], ["%s"]]
}
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "layer.ir"
    path.write_text(TEXT)
    return path


def test_text_runs_on_the_simulator(run, text: Path, tmp_path: Path) -> None:
    program = tmp_path / "layer.npu"
    code, out, err = run("run-ir", text, "--program", program)
    assert code == 0, err
    assert "all 144 results equal the reference" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["in", "1,152", "0"] in rows and ["weight", "1,728", "0"] in rows
    assert ["all", "2,896", "576"] in rows
    assert Program.from_file(program).planner == "text"
    code, listing, _ = run("disasm", program)
    assert code == 0 and "tconv zero" in listing and "# stream WEIGHT" in listing
    assert "tload input, activations, in" in listing


def test_text_runs_on_a_described_machine(run, text: Path, tmp_path: Path) -> None:
    machine = tmp_path / "accelerator.json"
    machine.write_text(ACCELERATOR % "OC")
    code, out, err = run("run-ir", text, "--machine", machine, "--seed", "3")
    assert code == 0, err
    assert "at 1200 MHz" in out and "equal the reference" in out
    machine.write_text(ACCELERATOR % "KH")
    code, _, err = run("run-ir", text, "--machine", machine)
    assert code == 1
    assert 'accelerator.json, line 5: pe_mapping: unknown mapping "KH"' in err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("INPUT_2[12]", "INPUT_2[204]", "layer.ir': line 18: INPUT_2 has channels 5 to 7; the"),
        ("IN_MEM_0(2048)", "IN_MEM_0(200)", "line 27: INPUT_0 needs 288 bytes; IN_MEM_0 has 200"),
        ("WT_MEM_0(1024)", "WT_MEM_0(1024000)", "WT_MEM_0 ends at byte 1024000 of the weight mem"),
        ("WORDS(4,4)", "WORDS(2,4)", "element_bytes is 4, in the text 2"),
    ],
)
def test_text_that_is_wrong(run, text: Path, old: str, new: str, message: str) -> None:
    text.write_text(TEXT.replace(old, new))
    code, out, err = run("run-ir", text)
    assert (code, out) == (1, "")
    assert message in err and err.count("\n") == 1


def test_text_is_refused_before_its_layer_is_made(
    run, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of some lines can say tensors of gigabytes."""
    code, out, err = run("run-ir", text, "--limits", "host_bytes=500")
    assert (code, out) == (1, "")
    assert "the plan's random layer needs 576 bytes, limit host_bytes allows 500" in err
    monkeypatch.setattr(texts, "random_layer", None)
    text.write_text(TEXT.replace("WT_MEM_0(1024)", "WT_MEM_0(1024000)"))
    code, out, err = run("run-ir", text)
    assert (code, out) == (1, "")
    assert "WT_MEM_0 ends at byte 1024000 of the weight memory" in err


def test_files_and_machines_that_are_none(run, text: Path, tmp_path: Path) -> None:
    code, _, err = run("run-ir", tmp_path / "none.ir")
    assert code == 1 and "cannot read execution plan" in err
    code, _, err = run("run-ir", text, "--machine", "nmp-4x8")
    assert code == 1 and "is of isa 'nmp'; an execution plan in text runs on 'tiles'" in err
    text.write_bytes(b"\xff\xfe\x00")
    code, _, err = run("run-ir", text)
    assert code == 1 and f"plan {str(text)!r}: not text (byte 0: invalid start byte)" in err


@pytest.mark.relay
class TestOfModels:
    @pytest.fixture(autouse=True)
    def _needs_tvm(self) -> None:
        pytest.importorskip("tvm.relay", exc_type=ImportError)

    @pytest.mark.parametrize("planner", ["exact", "tso"])
    def test_plan_of_an_nmp(self, run, lenet: Path, tmp_path: Path, planner: str) -> None:
        path = tmp_path / "conv2.ir"
        code, _, err = run(
            "ir", lenet, "--machine", "nmp-4x8", "--planner", planner, "--layer", "conv2",
            "--out", path,
        )  # fmt: skip
        assert code == 0, err
        text = path.read_text()
        assert text.startswith("// layer conv2 of digits_lenet.onnx, int16\n")
        assert f"// planner {planner} for nmp-4x8, core after core, for setup-a" in text
        ir = read_ir(text)
        assert (ir.problem.filters, ir.problem.channels) == (32, 16)
        code, out, err = run("run-ir", path)
        assert code == 0, err
        assert "all 512 results equal the reference" in out

    def test_layers_are_listed(self, run, lenet: Path) -> None:
        code, out, _ = run("ir", lenet, "--machine", "setup-a")
        assert code == 0
        assert out.splitlines()[0] == "conv1  1x8x8 -> 16x8x8, 3x3" and len(out.splitlines()) == 4
        code, _, err = run("ir", lenet, "--layer", "conv9")
        assert code == 1
        assert "no convolution 'conv9'; there are conv1, conv2, fc1, logits" in err
        code, _, err = run("ir", lenet, "--for", "nmp-4x8", "--layer", "conv1")
        assert code == 1 and "'nmp-4x8' is of isa 'nmp'" in err

    def test_layers_are_those_that_are_compiled(self, run, tmp_path: Path) -> None:
        """Without taps that meet nothing but padding."""
        onnx = pytest.importorskip("onnx")
        make, rates = onnx.helper, [36, 36]
        weight = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float32)
        conv = make.make_node("Conv", ["x", "w"], ["y"], "wide", dilations=rates, pads=rates * 2)
        shape = [1, 8, 14, 14]
        graph = make.make_graph(
            [conv], "wide",
            [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [make.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
            [onnx.numpy_helper.from_array(weight, "w")],
        )  # fmt: skip
        path, text = tmp_path / "wide.onnx", tmp_path / "wide.ir"
        opset = [make.make_opsetid("", 13)]
        onnx.save(make.make_model(graph, opset_imports=opset, ir_version=8), path)
        code, out, err = run("ir", path, "--machine", "setup-a")
        assert (code, out) == (0, "wide  8x14x14 -> 8x14x14, 1x1\n"), err
        code, _, err = run("ir", path, "--machine", "setup-a", "--layer", "wide", "--out", text)
        assert code == 0, err
        assert read_ir(text.read_text()).problem.kernel == (1, 1)
        code, out, err = run("run-ir", text)
        assert code == 0 and "results equal the reference" in out, err
