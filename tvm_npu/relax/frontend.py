"""Reading ONNX models through TVM's own frontend, with names of operators and without its
shortcuts.

The frontend writes padding, bounds and the like as loops (``call_tir``), which nobody can read as
operators again; here they stay operators. Every call carries the name of its node as its span.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import tvm
from tvm import relax, topi
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from tvm_npu.door.onnx.attributes import UNDERSTOOD_BY_ALL, check_attributes
from tvm_npu.door.onnx.model import read_model, with_explicit_padding
from tvm_npu.door.onnx.names import name_in, named
from tvm_npu.door.onnx.plain import check_domains
from tvm_npu.errors import MissingTorchError, PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx import readers as onnx_readers
from tvm_npu.relax.onnx.node import Node
from tvm_npu.relax.rewriting import stamped, with_arguments


def from_onnx(
    model: Any, shape: Mapping[str, tuple[int, ...]] | None = None, **options: Any
) -> tvm.IRModule:
    """`tvm.relax.frontend.onnx.from_onnx` for a model or its path; weights are constants.

    Inputs keep the model's names ("0", "input.1"), which TVM would make identifiers. ``shape``
    gives inputs' shapes that the model leaves open; ``options`` are those of TVM's importer.
    Raises PartitionError for a file that is not an ONNX model, and for operators on integers, which
    TVM's importer does not know.
    """
    model = read_model(model)
    with named(model):
        return _read(with_explicit_padding(model, shape), shape, **options)


def _read(model: Any, shape: Mapping[str, tuple[int, ...]] | None, **options: Any) -> tvm.IRModule:
    _check_integers(model)
    check_domains(model)
    check_attributes(model, UNDERSTOOD_BY_ALL, "TVM's importer for Relax")
    shapes = {name: list(extents) for name, extents in (shape or {}).items()}
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    options = {"dtype_dict": "float32", "sanitize": False, **options}
    importer = _Importer(shapes, options.pop("dtype_dict"), **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Renaming name")
        return importer.from_onnx(model.graph, opset)


def _check_integers(model: Any) -> None:
    """PartitionError for QLinearConv and its kind."""
    for node in model.graph.node:
        if node.op_type.startswith("QLinear") or node.op_type == "QGemm":
            raise PartitionError(
                f"{node.op_type} {node.name!r} computes with integers, which TVM's importer for "
                "Relax does not read: quantize the model with QuantizeLinear and DequantizeLinear "
                "(onnxruntime: quant_format=QuantFormat.QDQ), or read it through Relay's door"
            )


def from_exported_program(program: Any) -> tvm.IRModule:
    """`tvm.relax.frontend.torch.from_exported_program` for a torch.export.ExportedProgram, whose
    operators are called after the modules that they stand in (``layer1.0.conv1.convolution_3``);
    weights are constants, and a single output is no tuple.

    Raises MissingTorchError without torch, PartitionError for something else than such a program,
    and what torch's decompositions and TVM's frontend raise for operators that they do not know.
    """
    if find_spec("torch") is None:
        raise MissingTorchError(
            "from_exported_program needs torch, which is not installed: in the checkout, "
            "pip install '.[torch]' (a CPU build of torch is enough)"
        )
    if not callable(getattr(program, "run_decompositions", None)):
        raise PartitionError(
            f"from_exported_program got a {type(program).__name__}; expected a torch.export."
            "ExportedProgram, which torch.export.export(model, (example_input,)) makes"
        )
    from tvm_npu.relax.torch_export import read_program

    return read_program(program)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """Names the calls that a node becomes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.bb = NamingBuilder()

    def _convert_operator(
        self, op_name: str, inputs: list[Any], attrs: dict[str, Any], opset: int
    ) -> Any:
        self.bb.span = span_of(name_in(attrs))
        node = Node(self.bb, op_name, inputs, attrs, opset)
        made = onnx_readers.prepare(node)
        if made is None:
            made = super()._convert_operator(op_name, inputs, attrs, opset)
            made = onnx_readers.complete(node, made)
        return self.bb.emit(made) if isinstance(made, of.Call) else made


def span_of(name: str) -> Any:
    """What names calls after ``name``; None for ""."""
    return tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0) if name else None


class NamingBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """Keeps operators as operators; new calls get ``span``."""

    span: Any = None

    def emit(self, expr: Any, name_hint: str = "") -> Any:
        return super().emit(self._stamped(expr), name_hint)

    def normalize(self, expr: Any) -> Any:
        return super().normalize(self._stamped(expr))

    def _stamped(self, expr: Any) -> Any:
        """Nested calls are bound one by one: TVM drops the spans of calls around others."""
        expr = stamped(expr, self.span)
        if isinstance(expr, of.Call) and any(isinstance(arg, of.Call) for arg in expr.args):
            args = [self.emit(arg) if isinstance(arg, of.Call) else arg for arg in expr.args]
            return with_arguments(expr, args)
        return expr

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = None if kwargs else _operator(func, args)
        return super().emit_te(func, *args, **kwargs) if made is None else self.emit(made)


def _operator(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The operator that computes what ``func`` would; None for others."""
    if func is topi.nn.pad:
        data, before, after, value = args
        return relax.op.nn.pad(data, _widths(before, after), "constant", float(value))
    if func is topi.nn.mirror_pad and args[3] == "REFLECT":
        return relax.op.nn.pad(args[0], _widths(args[1], args[2]), "reflect", 0.0)
    if func in (topi.maximum, topi.minimum):
        operator = relax.op.maximum if func is topi.maximum else relax.op.minimum
        left, right = (_tensor(arg, args[0]) for arg in args)
        return operator(left, right)
    return None


def _widths(before: Any, after: Any) -> list[int]:
    return [int(amount) for both in zip(before, after, strict=True) for amount in both]


def _tensor(value: Any, like: Any) -> Any:
    if isinstance(value, int | float):
        return relax.const(value, of.dtype_of(like.ty))
    return value
