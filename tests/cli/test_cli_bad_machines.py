"""Machine files that are of little or no use: what the command line says, and that it survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the relay extra is not installed")

FEW_BIASES = "[memories]\nbias_bytes = 64\n[cores]\ntles = 1\ntlts_per_tle = 1\n"


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], Path]:
    """A file that differs from nmp-4x8 in the given lines."""

    def write(changes: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(f'extends = "nmp-4x8"\nname = "mine"\n{changes}')
        return path

    return write


@pytest.fixture
def make_conv(tmp_path: Path) -> Callable[..., Path]:
    """A model of one convolution: filters, channels, kernel, extent of a square input."""
    from onnx import TensorProto, helper, numpy_helper, save

    def make(filters: int, channels: int, kernel: int, extent: int) -> Path:
        values = np.full((filters, channels, kernel, kernel), 0.01, np.float32)
        graph = helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], name="conv")], "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, extent, extent))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            initializer=[numpy_helper.from_array(values, "w")],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        path = tmp_path / "one.onnx"
        save(model, path)
        return path

    return make


def last_line(text: str) -> str:
    return text.rstrip("\n").splitlines()[-1]


@pytest.mark.relay
class TestWithTvm:
    @pytest.mark.parametrize(
        ("layer", "changes", "rule", "found", "allowed"),
        [
            (
                (2, 1, 70, 80), "",
                "The smallest input tile of a convolution (one channel of one window) fits its "
                "memory.",
                "window 70x70 = 9800 bytes", "8192 bytes of MB0",
            ),
            (
                (2, 1, 6, 9), "[memories]\nmb1_bytes = 64\n",
                "The smallest weight tile (one channel of one filter) fits its memory.",
                "kernel 6x6 = 72 bytes", "64 bytes of MB1",
            ),
            (
                (33, 1, 1, 3), FEW_BIASES,
                "The biases of a layer fit the bias memories of all cores together.",
                "33 filters = 132 bytes in each TLT", "64 bytes of bias buffer",
            ),
            (
                (2, 8, 1, 100), "[dram]\ncapacity_bytes = 65536\n",
                "Operands and result of one image lie in the machine's DRAM together.",
                "200032 bytes", "65536 bytes of DRAM",
            ),
        ],
    )  # fmt: skip
    def test_layers_larger_than_the_machine_stay_on_the_cpu(
        self, run, make_conv, machine, layer, changes, rule, found, allowed
    ) -> None:  # type: ignore[no-untyped-def]
        """Every command says what runs on the CPU, by which rule, with the value and the limit."""
        model = make_conv(*layer)
        for command in (["profile"], ["compile", "-o", model.parent]):
            code, out, err = run(command[0], model, *command[1:], "--machine", machine(changes))
            assert code == 1
            assert f"no operator of {str(model)!r} runs on the NPU" in last_line(err)
            text = " ".join((out + err).split())
            for part in (rule, found, f"found: {found}; allowed: {allowed}"):
                assert part in text, part

    @pytest.mark.parametrize("command", ["profile", "compile"])
    def test_program_larger_than_dram(self, run, lenet, machine, tmp_path, command) -> None:  # type: ignore[no-untyped-def]
        from tvm_npu import models

        path = tmp_path / "lenet.onnx"
        path.write_bytes(models.build("lenet").SerializeToString())
        extra = ["-o", tmp_path] if command == "compile" else []
        small = machine("[dram]\ncapacity_bytes = 65536\n")
        # Without cascades, whose OFMs in between take no DRAM.
        code, _, err = run(command, path, *extra, "--machine", small, "--planner", "tso")
        assert code == 1
        assert "bytes of DRAM; machine 'mine' has dram.capacity_bytes = 65536" in last_line(err)

    @pytest.mark.parametrize("planner", ["tso", "exact"])
    @pytest.mark.parametrize(
        "changes",
        [
            "[memories]\nmb0_bytes = 64\nmb1_bytes = 64\nmb2_bytes = 64\nbias_bytes = 64\n",
            "[cores]\ntles = 1\ntlts_per_tle = 1\n[mac]\ndatapath_bits = 16\n"
            "[dme]\nqueue_depth = 1\nsemaphores = 11\n",
            "[cores]\ntles = 7\ntlts_per_tle = 3\n[dram]\nburst_bytes = 9\n",
        ],
    )
    def test_absurd_machines_still_run(self, run, lenet, digits_npz, machine, changes, planner):  # type: ignore[no-untyped-def]
        """A program for such a machine runs to its end; values are the differential tests'."""
        path = machine(changes)
        code, out, err = run(
            "profile", lenet, "--machine", path, "--planner", planner, "--calibration", digits_npz
        )
        assert code == 0, err
        assert "one inference:" in out
