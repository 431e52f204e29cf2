"""Relax modules that do not come from an ONNX file: built by hand, with conditionals in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_npu.door.find import door_name

pytest.importorskip("tvm", reason="the relax extra is not installed")
if door_name() != "relax":
    pytest.skip("needs TVM 0.26 or later", allow_module_level=True)

import tvm  # noqa: E402
from tvm import relax  # noqa: E402
from tvm.script import ir as I  # noqa: E402
from tvm.script import relax as R  # noqa: E402

from tvm_npu.errors import CutError, NothingOffloadedWarning  # noqa: E402
from tvm_npu.relax import explain, partition_for_npu, run_codegen  # noqa: E402
from tvm_npu.relax import expressions as of  # noqa: E402
from tvm_npu.relax.door import DOOR  # noqa: E402


@I.ir_module
class Branching:
    """Branches read a convolution, a parameter and a constant that normalising replaces."""

    @R.function
    def main(
        x: R.Tensor((1, 3, 8, 8), "float32"),
        w: R.Tensor((4, 3, 3, 3), "float32"),
        b: R.Tensor((1, 4, 1, 1), "float32"),
        c: R.Tensor((), "bool"),
    ):
        y = R.nn.conv2d(x, w, padding=[1, 1, 1, 1])
        z = R.add(y, b)
        if c:
            t = R.add(z, b)
            r = R.multiply(t, y)
        else:
            r = R.subtract(z, b)
        return r


def test_branches_read_what_stands_for_the_variables_outside() -> None:
    random = np.random.default_rng(4)
    x, w = (random.standard_normal(s).astype(np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    b = random.standard_normal((1, 4, 1, 1)).astype(np.float32)
    samples = [{"x": x, "c": np.array(True)}]
    mod = partition_for_npu(Branching, {"w": w / 5, "b": b}, calibration=samples)
    assert [len(one.operators) for one in explain(mod).regions] == [2]
    mod = relax.transform.RunCodegen()(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    for chosen in (True, False):
        float_mod = relax.transform.BindParams("main", {"w": w / 5, "b": b})(Branching)
        plain = relax.VirtualMachine(tvm.compile(float_mod, target="llvm"), tvm.cpu())
        arguments = [tvm.runtime.tensor(one) for one in (x, np.array(chosen))]
        got, want = (vm["main"](*arguments).numpy() for vm in (machine, plain))
        assert np.abs(got - want).max() < 0.01 * np.abs(want).max()


def test_libraries_hold_programs_and_constants_of_the_cpu_but_no_weights_of_regions(
    tmp_path: Path,
) -> None:
    """TVM's own pass keeps the weights; both libraries compute the same."""
    random = np.random.default_rng()
    x, w = (random.standard_normal(s).astype(np.float32) for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
    b = random.standard_normal((1, 4, 1, 1)).astype(np.float32)
    samples = [{"x": x, "c": np.array(True)}]
    mod = partition_for_npu(Branching, {"w": w / 5, "b": b}, calibration=samples)
    found, answers = [], []
    for number, compiled in enumerate((run_codegen(mod), relax.transform.RunCodegen()(mod))):
        library = tvm.compile(compiled, target="llvm")
        path = tmp_path / f"{number}.so"
        library.export_library(str(path))
        found.append((w / 5).tobytes() in path.read_bytes())
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
        arguments = [tvm.runtime.tensor(one) for one in (x, np.array(False))]
        answers.append(machine["main"](*arguments).numpy())
    assert found == [False, True]
    assert np.array_equal(*answers)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x, "no operator"),
        (lambda x: of.Tuple([relax.op.nn.relu(x), relax.const(1.0)]), "output of the model is a"),
    ],
)
def test_what_cannot_be_cut(make: Callable[[Any], Any], message: str) -> None:
    x = relax.Var("x", of.TensorType((1, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.normalize(make(x)))
    with pytest.raises(CutError, match=message):
        DOOR.cut(builder.get(), None, target="llvm", name="model")


def test_control_flow_and_open_shapes_cannot_be_cut() -> None:
    with pytest.raises(CutError, match="has a If: only plain dataflow"):
        DOOR.cut(Branching, None, target="llvm", name="model")
    x = relax.Var("x", of.TensorType((1, tvm.tirx.Var("n", "int64")), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    with pytest.raises(CutError, match="tensor of 'x' has type .*: stages need static shapes"):
        DOOR.cut(builder.get(), None, target="llvm", name="model")
    with pytest.raises(CutError, match="no function 'main'"):
        DOOR.cut(tvm.IRModule(), None, target="llvm", name="model")


def test_turned_weights_stay_as_the_module_holds_them() -> None:
    """The product's region reads the model's own memory; what the CPU reads is turned at once."""
    random = np.random.default_rng(5)
    weight = relax.const(random.standard_normal((4, 6)).astype(np.float32))
    x = relax.Var("x", of.TensorType((1, 6), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        turned = builder.emit(relax.op.permute_dims(weight))
        product = builder.emit(relax.op.matmul(x, turned))
        wave = builder.emit(relax.op.sin(relax.op.reshape(x, (6, 1))))
        builder.emit_func_output(of.Tuple([product, relax.op.add(wave, turned), turned]))
    values = random.standard_normal((1, 6)).astype(np.float32)
    mod = partition_for_npu(builder.get(), {}, calibration=[{"x": values}])
    (symbol,) = DOOR.regions(mod)
    (held,) = (one.array for one in DOOR.region(mod, symbol).flow.constants)
    assert np.shares_memory(held, of.array_of(weight)) and held.shape == (6, 4)
    names = [of.op_name(one.value) for one in of.bindings(mod["main"])]
    assert "relax.permute_dims" not in names and "relax.sin" in names
    machine = relax.VirtualMachine(tvm.compile(run_codegen(mod), target="llvm"), tvm.cpu())
    got = [one.numpy() for one in machine["main"](tvm.runtime.tensor(values))]
    matrix = of.array_of(weight).T
    for one, want in zip(got, (values @ matrix, np.sin(values.T) + matrix, matrix), strict=True):
        assert np.abs(one - want).max() < 0.001 * np.abs(want).max()


def test_quotients_on_the_cpu_have_the_bits_of_relay() -> None:
    """Relay multiplies by reciprocals: of counts, of constants, and by those of square roots."""
    random = np.random.default_rng(8)
    values = random.standard_normal((1, 3, 5, 7)).astype(np.float32)
    x = relax.Var("x", of.TensorType(values.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        wave = builder.emit(relax.op.sin(x))
        mean = builder.emit(relax.op.mean(wave, [-1], keepdims=True))
        share = builder.emit(relax.op.divide(wave, relax.const(np.float32(3))))
        root = builder.emit(relax.op.sqrt(relax.op.abs(wave)))
        builder.emit_func_output(of.Tuple([wave, mean, share, relax.op.divide(wave, root)]))
    with pytest.warns(NothingOffloadedWarning):
        mod = partition_for_npu(builder.get(), {}, calibration=[{"x": values}])
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    got = [one.numpy() for one in machine["main"](tvm.runtime.tensor(values))]
    wave, one = got[0], np.float32(1)
    total = np.zeros((1, 3, 5), np.float32)
    for column in range(7):
        total += wave[..., column]
    wanted = [total[..., None] * (one / 7), wave * (one / 3), wave * (one / np.sqrt(abs(wave)))]
    for found, want in zip(got[1:], wanted, strict=True):
        assert np.array_equal(found, want)
