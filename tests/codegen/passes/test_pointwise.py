"""Activations however they are spelt become one table; others stay what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tvm_npu.codegen.graph import Clip, Graph, Layer
from tvm_npu.codegen.ops import (
    Conv2d,
    Elementwise,
    FixedElementwise,
    Maximum,
    ScaleShift,
    TableFunction,
)
from tvm_npu.codegen.ops.functions import FUNCTIONS, Function, function_called
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed, run_float

SHAPE = (3, 4, 5)


class Spelling:
    """Layers on the tensor x, written one behind the other."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def _new(self) -> tuple[str, str]:
        number = len(self.layers)
        return f"l{number}", f"t{number}"

    def affine(self, x: str, scale: float, bias: float = 0.0) -> str:
        name, made = self._new()
        scales = np.full(SHAPE[0], scale, np.float32)
        biases = np.full(SHAPE[0], bias, np.float32)
        self.layers.append(ScaleShift(name, (x,), (made,), scales, biases, source=(name,)))
        return made

    def clip(self, x: str, low: float, high: float = np.inf) -> str:
        name, made = self._new()
        clip = Clip(low, high)
        self.layers.append(Elementwise(name, (x,), (made,), "copy", clip, source=(name,)))
        return made

    def join(self, op: str, a: str, b: str) -> str:
        name, made = self._new()
        if op == "max":
            self.layers.append(Maximum(name, (a, b), (made,), source=(name,)))
        else:
            self.layers.append(Elementwise(name, (a, b), (made,), op, source=(name,)))  # type: ignore
        return made

    def table(self, function: str, x: str) -> str:
        name, made = self._new()
        self.layers.append(TableFunction(name, (x,), (made,), function, source=(name,)))
        return made

    def graph(self, *outputs: str) -> Graph:
        shapes = {"x": SHAPE, **{layer.output: SHAPE for layer in self.layers}}
        return Graph(tuple(self.layers), shapes, ("x",), outputs)


def _silu(s: Spelling) -> str:
    return s.join("mul", s.table("sigmoid", "x"), "x")


def _hard_swish(s: Spelling) -> str:
    return s.affine(s.join("mul", "x", s.clip(s.affine("x", 1, 3), 0, 6)), 1 / 6)


def _other_hard_swish(s: Spelling) -> str:
    return s.join("mul", "x", s.affine(s.clip(s.affine("x", 1, 3), 0, 6), 1 / 6))


def _elu(s: Spelling) -> str:
    """As TVM's ONNX frontend writes it."""
    negative = s.clip(s.affine(s.table("exp", "x"), -1, 1), 0)
    return s.join("add", s.affine(negative, -1), s.clip("x", 0))


def _selu(s: Spelling) -> str:
    negative = s.affine(s.clip(s.affine(s.table("exp", "x"), -1, 1), 0), -1.67326319217681884765625)
    return s.affine(s.join("add", negative, s.clip("x", 0)), 1.05070102214813232421875)


def _gelu(s: Spelling) -> str:
    inner = s.affine(s.table("erf", s.affine("x", 0.5**0.5)), 1, 1)
    return s.join("mul", s.affine("x", 0.5), inner)


def _gelu_tanh(s: Spelling) -> str:
    cube = s.join("mul", s.join("mul", "x", "x"), "x")
    inner = s.affine(s.join("add", "x", s.affine(cube, 0.044715)), 0.7978845608)
    return s.affine(s.join("mul", "x", s.affine(s.table("tanh", inner), 1, 1)), 0.5)


def _softplus(s: Spelling) -> str:
    return s.table("log", s.affine(s.table("exp", "x"), 1, 1))


def _mish(s: Spelling) -> str:
    return s.join("mul", "x", s.table("tanh", _softplus(s)))


def _tanh_of_square(s: Spelling) -> str:
    return s.table("tanh", s.affine(s.join("mul", "x", "x"), 0.1))


SPELLINGS: dict[str, tuple[Callable[[Spelling], str], str]] = {
    "silu": (_silu, "silu"), "hard swish": (_hard_swish, "hard_swish"),
    "other hard swish": (_other_hard_swish, "hard_swish"), "elu": (_elu, "elu"),
    "selu": (_selu, "selu"), "gelu": (_gelu, "gelu"), "gelu by tanh": (_gelu_tanh, "gelu_tanh"),
    "softplus": (_softplus, "softplus"), "mish": (_mish, "mish"),
    "in no list": (_tanh_of_square, "function"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_becomes_one_table(name: str) -> None:
    spell, function = SPELLINGS[name]
    spelling = Spelling()
    graph = spelling.graph(spell(spelling))
    after = fuse(graph)
    (layer,) = after.layers
    assert isinstance(layer, TableFunction) and function_called(layer.function).name == function
    assert isinstance(layer.function, str) == (function in FUNCTIONS)
    assert sorted(layer.source) == sorted(one.name for one in graph.layers)
    x = np.random.default_rng(3).normal(0, 4, (2, *SHAPE)).astype(np.float32)
    (want,) = (run_float(graph, {"x": x})[t] for t in graph.outputs)
    (made,) = (run_float(after, {"x": x})[t] for t in graph.outputs)
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=3e-6)
    for precision, least_db in (("int16", 60.0), ("int8", 24.0)):
        fixed = quantize(after, calibrate(after, [{"x": x}]), precision)  # type: ignore[arg-type]
        q = run_fixed(fixed, {"x": fixed.scales["x"].quantize(x, fixed.element_bytes)})
        error = fixed.scales[fixed.outputs[0]].dequantize(q[fixed.outputs[0]]) - want
        assert 10 * np.log10((want**2).sum() / (error**2).sum()) > least_db


def test_what_others_read_stays() -> None:
    """The sigmoid is an output: only the product with it is a layer of its own."""
    s = Spelling()
    gate = s.table("sigmoid", "x")
    after = fuse(s.graph(s.join("mul", gate, "x"), gate))
    assert [type(layer) for layer in after.layers] == [TableFunction, Elementwise]
    t = Spelling()
    inner = t.clip(t.affine("x", 1, 3), 0, 6)
    after = fuse(t.graph(t.affine(t.join("mul", "x", inner), 1 / 6), t.table("tanh", inner)))
    assert sum(isinstance(layer, TableFunction) for layer in after.layers) == 1


def test_scales_and_clips_alone_are_no_table() -> None:
    s = Spelling()
    assert not any(
        isinstance(layer, TableFunction)
        for layer in fuse(s.graph(s.clip(s.affine(s.clip("x", 0), 2, 1), 0, 6))).layers
    )
    t = Spelling()
    before = t.clip(t.affine("x", 2, 1), 0, 6)
    after = fuse(t.graph(t.table("tanh", before)))
    assert [type(layer) for layer in after.layers] == [Conv2d, TableFunction]
    assert after.layers[-1].function == "tanh"  # type: ignore[attr-defined]


def test_products_of_two_tensors_are_no_table() -> None:
    s = Spelling()
    other = s.affine("x", 2)
    s.layers[-1] = ScaleShift("l0", ("x",), (other,), np.arange(3, dtype=np.float32), np.ones(3))
    after = fuse(s.graph(s.join("mul", "x", other)))
    assert not any(isinstance(layer, TableFunction) for layer in after.layers)


def test_a_machine_without_tables_gets_none() -> None:
    s = Spelling()
    graph = s.graph(_hard_swish(s))
    after = fuse(graph, {FixedElementwise})
    assert not any(isinstance(layer, TableFunction) for layer in after.layers)


def test_functions_have_values_for_all_arguments() -> None:
    x = np.array([-1e6, -700.0, -1.0, 0.0, 2.0, 800.0, 1e6])
    for function in FUNCTIONS.values():
        assert np.isfinite(function(x)).all(), function.name
    assert isinstance(function_called("elu"), Function)
