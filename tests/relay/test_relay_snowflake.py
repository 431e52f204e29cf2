"""Snowflake machines through the Relay doors: images apart, devices, exported libraries, tvmc,
recurrent models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm import relay  # noqa: E402

import tvm_npu  # noqa: E402
from tests.relay.relay_cases import const, module, randoms, stock, var  # noqa: E402
from tests.relay.test_relay_tvmc import onnx_cnn  # noqa: E402
from tvm_npu import models, tvmc  # noqa: E402
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor  # noqa: E402
from tvm_npu.codegen.ops import Gru, Lstm  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.codegen.reference import run_fixed  # noqa: E402
from tvm_npu.errors import TargetError  # noqa: E402
from tvm_npu.relay import (  # noqa: E402
    explain,
    from_onnx,
    import_region,
    partition_for_npu,
    region_fixed_graphs,
    region_functions,
    region_programs,
)
from tvm_npu.runtime.packed import last_session  # noqa: E402

pytestmark = pytest.mark.relay

ROOT = Path(__file__).parents[2]
BATCH = 5
X = randoms(6, BATCH, 3, 9, 8)

FRESH = """
import json
import sys
import numpy as np
import tvm_npu.runtime
import tvm
from tvm.contrib import graph_executor
library = tvm.runtime.load_module(sys.argv[1])
executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
executor.set_input("x", np.load(sys.argv[2]))
executor.run()
np.save(sys.argv[3], executor.get_output(0).numpy())
assert not {"tvm_npu.relay", "tvm_npu.codegen.snowflake.plan"} & set(sys.modules)
(session,) = tvm_npu.runtime.sessions().values()
print(json.dumps([session.program.batch, len(session.devices), session.statistics.macs]))
"""


def convolutions(batch: int) -> Any:
    """One region: two convolutions, a sum and a pool; input ``x`` [batch, 3, 9, 8]."""
    x = var("x", (batch, 3, 9, 8))
    y = relay.nn.relu(
        relay.nn.conv2d(x, const(randoms(7, 6, 3, 3, 3)), padding=(1, 1), channels=6,
                        kernel_size=(3, 3))
    )  # fmt: skip
    z = relay.nn.conv2d(y, const(randoms(8, 6, 6, 1, 1)), channels=6, kernel_size=(1, 1))
    return module(relay.nn.max_pool2d(relay.add(y, z), (2, 2), (2, 2)))


def machine_file(folder: Path, base: str, devices: int) -> Path:
    path = folder / "mine.toml"
    path.write_text(f'extends = "{base}"\nname = "mine"\ndevices = {devices}\n')
    return path


def expected(mod: Any, x: Any) -> Any:
    """What the reference makes of the one region of ``mod``, as floats."""
    (fixed,) = region_fixed_graphs(mod).values()
    (source,), (result,) = fixed.inputs, fixed.outputs
    integers = quantize_tensor(x, fixed.q_points[source], fixed.element_bytes)
    wanted = run_fixed(fixed, {source: integers})[result]
    return dequantize_tensor(wanted, fixed.q_points[result])


@pytest.mark.parametrize(
    ("machine", "images"),
    [("snowflake-1cu", "together"), ("snowflake-2cc", "apart"), ("snowflake-4cc", "apart")],
)
def test_target_options_say_what_clusters_do(machine: str, images: Any) -> None:
    target = tvm_npu.target(machine, images=images, planner="snowflake")
    mod = partition_for_npu(convolutions(BATCH), target=target, calibration=X)
    (content,) = region_programs(mod).values()
    program = Program.from_bytes(content)
    clusters = {"snowflake-2cc": 2, "snowflake-4cc": 4}.get(machine, 1)
    assert program.batch == clusters and program.machine["name"] == machine
    (got,) = stock(mod, [X], target)
    np.testing.assert_array_equal(got, expected(mod, X))
    session = last_session()
    assert session.program.batch == clusters and session.statistics.machine == machine


def test_target_options_that_do_not_fit() -> None:
    with pytest.raises(TargetError, match="option images: images apart: machine 'snowflake-1cc'"):
        tvm_npu.target("snowflake-1cc", images="apart")
    with pytest.raises(TargetError, match="images 'beside': must be one of together, apart"):
        tvm_npu.target("snowflake-2cc", images="beside")


def test_exported_library_in_a_fresh_process(tmp_path: Path) -> None:
    """Of a machine file with two devices of two clusters that take an image each."""
    target = tvm_npu.target(machine_file(tmp_path, "snowflake-2cc", 2), images="apart")
    mod = partition_for_npu(convolutions(BATCH), target=target, calibration=X)
    relay.build(mod, target=target).export_library(str(tmp_path / "model.so"))
    np.save(tmp_path / "x.npy", X)
    files = [str(tmp_path / name) for name in ("model.so", "x.npy", "y.npy")]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *files], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    batch, devices, executed = json.loads(done.stdout)
    assert (batch, devices) == (2, 2) and executed > 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected(mod, X))


def test_tvmc_compiles_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    x = randoms(4, 1, 3, 9, 8)
    onnx.save(onnx_cnn(), "m.onnx")
    np.savez("x.npz", x=x)
    target = "npu -machine=snowflake-4cc -images=apart -calibration=x.npz, llvm"
    assert tvmc.main(["compile", "--target", target, "m.onnx", "-o", "m.tar"]) == 0
    assert tvmc.main(["run", "--inputs", "x.npz", "-o", "y.npz", "m.tar"]) == 0
    session = last_session()
    assert session.statistics.machine == "snowflake-4cc" and session.program.batch == 4
    (want,) = ort.InferenceSession("m.onnx").run(None, {"x": x})
    assert 0 < np.abs(np.load("y.npz")["output_0"] - want).max() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-machine=snowflake-1cc -images=apart", "machine 'snowflake-1cc' computes one image"),
        ("-machine=snowflake-2cc -images=beside", "images 'beside': must be one of together"),
    ],
)
def test_tvmc_errors(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx_cnn(), tmp_path / "m.onnx")
    model, package = str(tmp_path / "m.onnx"), str(tmp_path / "m.tar")
    assert tvmc.main(["compile", f"--target=npu {options}, llvm", model, "-o", package]) == 4
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "machine", "with_states", "door"),
    [("lstm", "snowflake-2cc", True, from_onnx), ("gru", "snowflake-1cu", False, None)],
)
def test_recurrent_models(
    cell: Literal["lstm", "gru"], machine: str, with_states: bool, door: Any
) -> None:
    """As one layer, whether the project's reader or TVM's frontend unrolls the steps."""
    ort = pytest.importorskip("onnxruntime")
    model = models.build_recurrent(
        cell, hidden=7, features=5, steps=3, layers=1, with_states=with_states
    )
    rng = np.random.default_rng(5)
    feed = {
        entry.name: rng.uniform(
            -1, 1, [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for entry in model.graph.input
    }
    read = relay.frontend.from_onnx if door is None else door
    mod = partition_for_npu(*read(model), target=f"npu/{machine}", calibration=feed)
    assert not explain(mod).refusals
    (function,) = region_functions(mod).values()
    (layer,) = import_region(function).layers
    assert isinstance(layer, Lstm if cell == "lstm" else Gru)
    order = [parameter.name_hint for parameter in mod["main"].params]
    got = stock(mod, [feed[name] for name in order], f"npu/{machine}")
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    for made, right in zip(got, wanted, strict=True):
        assert made.shape == right.shape and 0 < np.abs(made - right).max() < 1e-3
    assert last_session().statistics.machine == machine


def test_steps_that_are_no_layer_run_as_products() -> None:
    """Several sequences side by side: a step is a matrix product, gates by table, sums."""
    ort = pytest.importorskip("onnxruntime")
    model = models.build_recurrent("gru", hidden=4, features=3, steps=2, layers=1, batch=2)
    feed = {"data": randoms(9, 2, 2, 3)}
    mod = partition_for_npu(*from_onnx(model), target="npu/snowflake-1cc", calibration=feed)
    report = explain(mod)
    assert report.mac_share == 1 and len(report.regions) == 1
    (got,) = stock(mod, [feed["data"]], "npu/snowflake-1cc")
    (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    assert 0 < np.abs(got - wanted).max() < 1e-3
