"""Models of `torch.export` through the Relax door. Torch is optional and large (the `torch` extra):
where it is not installed, these tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_npu.codegen.program.format import Program
from tvm_npu.door.find import door_name

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("tvm", reason="the relax extra is not installed")
if door_name() != "relax":
    pytest.skip("needs TVM 0.26 or later", allow_module_level=True)

import onnx  # noqa: E402
import tvm  # noqa: E402
from torch import nn  # noqa: E402
from tvm import relax  # noqa: E402

from tvm_npu.relax import (  # noqa: E402
    explain,
    from_exported_program,
    from_onnx,
    partition_for_npu,
    region_programs,
    run_codegen,
)


class Residual(nn.Module):
    """Batch norms, a projection, squeeze and excitation, and activations of many kinds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU6(), nn.MaxPool2d(2))
        self.left = nn.Conv2d(channels, 2 * channels, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(2 * channels)
        self.right = nn.Conv2d(channels, 2 * channels, 1, 2)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * channels, 2 * channels, 1))
        self.bent = nn.Sequential(
            nn.PReLU(2 * channels, init=0.3), nn.Conv2d(2 * channels, channels, 1),
            nn.GELU(), nn.Conv2d(channels, channels, 1), nn.GELU("tanh"),
            nn.Conv2d(channels, channels, 1), nn.Hardswish(), nn.Conv2d(channels, channels, 1),
        )  # fmt: skip
        self.head = nn.Linear(channels, 5)

    def forward(self, image: Any) -> Any:
        x = self.stem(image)
        x = torch.relu(self.norm(self.left(x))) - self.right(x)
        x = x * torch.sigmoid(self.gate(x))
        return self.head(self.bent(x).mean((2, 3)))


def with_random_weights(model: nn.Module) -> nn.Module:
    """Weights that keep signals as wide as they are, so that every layer shows in the answer."""
    with torch.no_grad():
        for values in model.parameters():
            wide = values.dim() > 1
            values.normal_(std=(2.0 / values[0].numel()) ** 0.5 if wide else 0.3)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                module.weight.uniform_(0.5, 2.0)
    return model.eval()


def exported(model: nn.Module, image: Any) -> tvm.IRModule:
    return from_exported_program(torch.export.export(model, (image,)))


def through_onnx(model: nn.Module, image: Any, path: Path) -> tvm.IRModule:
    torch.onnx.export(model, (image,), path, dynamo=False, opset_version=17)
    return from_onnx(onnx.load(path))


def run(mod: tvm.IRModule, image: Any) -> Any:
    library = tvm.compile(run_codegen(mod), target=tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(library, tvm.cpu())
    return machine["main"](tvm.runtime.tensor(image.numpy())).numpy()


def sqnr_db(want: Any, got: Any) -> float:
    noise = max(float(np.square(want - got).sum()), 1e-30)
    return float(10 * np.log10(np.square(want).sum() / noise))


@pytest.fixture
def image() -> Any:
    seed = int(np.random.default_rng().integers(2**31))
    print("seed", seed)
    torch.manual_seed(seed)
    return torch.randn(1, 3, 32, 32)


def test_a_network_lands_on_the_npu_whole_and_agrees_with_torch_and_onnx(
    image: Any, tmp_path: Path
) -> None:
    model = with_random_weights(Residual(8))
    answers = {}
    for name, mod in (
        ("torch", exported(model, image)),
        ("onnx", through_onnx(model, image, tmp_path / "model.onnx")),
    ):
        mod = partition_for_npu(mod, target="npu/nmp-4x8", calibration=image.numpy())
        report = explain(mod)
        assert len(report.regions) == 1 and report.npu_macs == report.total_macs > 0
        assert not report.refusals
        answers[name] = run(mod, image)
    want = model(image).detach().numpy()
    assert sqnr_db(want, answers["torch"]) > 40
    assert sqnr_db(answers["onnx"], answers["torch"]) > 40


def test_the_program_is_that_of_the_onnx_file_and_operators_are_called_after_modules(
    image: Any, tmp_path: Path
) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(6 * 14 * 14, 7),
    ).eval()  # fmt: skip
    programs = []
    for mod in (exported(model, image), through_onnx(model, image, tmp_path / "model.onnx")):
        mod = partition_for_npu(mod, target="npu/nmp-4x8", calibration=image.numpy())
        ((_, data),) = region_programs(mod).items()
        programs.append(Program.from_bytes(data))
    one, other = programs
    assert one.code.tobytes() == other.code.tobytes() and one.constants == other.constants
    sources = [source for layer in one.layers for source in layer.source]
    assert {source.split(".")[0] for source in sources} == {"0", "1", "2", "3", "4", "6"}
