"""Model files (ONNX, TensorFlow Lite), the shapes of their inputs, and their import."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.cli.errors import CliError, UsageError
from tvm_npu.cli.files import read_bytes
from tvm_npu.cli.terminal import Steps, Terminal
from tvm_npu.sim.bounded_files import MOST_BYTES
from tvm_npu.sim.texts import shown

if TYPE_CHECKING:
    from tvm_npu.door.models import ImportedModel

Shape = tuple[int, ...]
LARGEST_EXTENT = 1 << 31


def parse_shapes(texts: list[str]) -> dict[str, Shape]:
    """``["image=1,3,224,224"]`` -> ``{"image": (1, 3, 224, 224)}``. Raises UsageError."""
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.split(","))
        except ValueError:
            shape = ()
        if not (name and equals and shape and all(0 < n < LARGEST_EXTENT for n in shape)):
            raise UsageError(
                f"argument --shape: {text!r} is not NAME=EXTENT,EXTENT,... with positive extents, "
                "for example image=1,3,224,224"
            )
        if name in shapes:
            raise UsageError(f"argument --shape: input {name!r} is given twice")
        shapes[name] = shape
    return shapes


def is_tflite(path: Path) -> bool:
    return path.suffix.lower() == ".tflite"


def read_onnx(path: Path, weights_seed: int | None = None) -> Any:
    """The model in ``path`` (an onnx.ModelProto, with its external data); with a seed weights that
    it lacks are random. Raises CliError, and PartitionError for those that cannot be."""
    import onnx
    from onnx.checker import ValidationError

    content = read_bytes(path, "model")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own error types differ between its backends
        raise CliError(f"{str(path)!r} is not an ONNX model: {error}") from error
    # Protocol buffers read many a foreign file as a message of unknown fields.
    if not (model.graph.node and model.graph.output and model.opset_import):
        raise CliError(
            f"{str(path)!r} is not an ONNX model: {len(content)} bytes with "
            f"{len(model.graph.node)} operators and {len(model.graph.output)} outputs"
        )
    if weights_seed is not None:
        from tvm_npu.door.random_weights import with_random_weights

        model = with_random_weights(model, weights_seed, path.parent)
    try:
        _check_weights_beside(model, path.parent)
        onnx.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, ArithmeticError, MemoryError, ValidationError) as error:
        reason = str(error) or "one is said to be larger than this machine's memory"
        raise CliError(
            f"cannot read the weights beside {str(path)!r}: {reason} "
            "(--random-weights does without)"
        ) from error
    return model


def _check_weights_beside(model: Any, folder: Path) -> None:
    """ValueError unless each tensor beside a model takes from its file no more than it has, and
    all of them no more than a file may have; OSError."""
    from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data
    from onnx.helper import tensor_dtype_to_np_dtype

    total = 0
    for tensor in filter(uses_external_data, _get_all_tensors(model)):
        info = ExternalDataInfo(tensor)
        if os.path.isabs(info.location) or ".." in Path(info.location).parts:
            continue  # no file beside the model: whoever loads them refuses it
        found = info.length or os.path.getsize(folder / info.location) - (info.offset or 0)
        try:
            kind = tensor_dtype_to_np_dtype(tensor.data_type)
        except KeyError:
            raise ValueError(f"{shown(tensor.name)} is of type {tensor.data_type}") from None
        wanted = math.prod(tensor.dims) * kind.itemsize
        if not 0 <= found <= wanted:
            raise ValueError(
                f"{shown(tensor.name)} takes {shown(found)} bytes of {shown(info.location)}; "
                f"{' x '.join(map(str, tensor.dims))} numbers ({kind}) are {shown(wanted)}"
            )
        total += found
    if total > MOST_BYTES:
        raise ValueError(f"they are {shown(total)} bytes; at most {MOST_BYTES}")


def import_file(
    path: Path,
    given: Mapping[str, Shape],
    terminal: Terminal,
    steps: Steps,
    weights_seed: int | None = None,
) -> ImportedModel:
    """Reads and imports the model in ``path`` (.tflite, or else ONNX); begins two steps. With
    ``weights_seed`` weights that it lacks are random. Raises CliError, and the typed errors of the
    door."""
    steps.begin("reading the model")
    if is_tflite(path):
        if weights_seed is not None:
            raise CliError(f"--random-weights: {str(path)!r} is a TensorFlow Lite model, not ONNX")
        return _import_tflite(path, given, steps)
    model = read_onnx(path, weights_seed)
    known, notes = input_shapes(model, given)
    for note in notes:
        terminal.note(note)
    steps.begin("importing the model into TVM")
    from tvm_npu.door.models import import_onnx

    return import_onnx(model, known)


def _import_tflite(path: Path, given: Mapping[str, Shape], steps: Steps) -> ImportedModel:
    """A TensorFlow Lite file; its shapes are its own."""
    if given:
        raise CliError(f"--shape: {str(path)!r} is a TensorFlow Lite model, which says its shapes")
    content = read_bytes(path, "model")
    steps.begin("importing the model into TVM")
    from tvm_npu.door.models import import_tflite

    return import_tflite(content)


def input_shapes(model: Any, given: Mapping[str, Shape]) -> tuple[dict[str, Shape], list[str]]:
    """(shape of every input, notes for the user). An open batch extent is taken as 1.

    Raises CliError for open extents that ``given`` does not fill and for shapes that contradict
    the model.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    names = [value.name for value in inputs]
    for name in given:
        if name not in names:
            raise CliError(f"--shape {name}: the model has no such input; it has {_listed(names)}")
    shapes, notes = {}, []
    for value in inputs:
        declared = _declared(value)
        shape = given.get(value.name)
        if shape is None:
            shape, filled = _with_batch(value.name, declared)
            if filled:
                notes.append(
                    f"the batch extent of input {value.name!r} is open: taken as 1 "
                    f"(--shape {value.name}=... sets it)"
                )
        elif declared is not None:
            _check_given(value.name, shape, declared)
        shapes[value.name] = shape
    return shapes, notes


Declared = tuple[int | str, ...]


def _declared(value: Any) -> Declared | None:
    """Extents as the model states them: numbers, or the name of an open one; None: no rank."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise CliError(f"input {value.name!r} is a {kind}; only tensors are supported")
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        int(dim.dim_value) if dim.dim_value > 0 else (dim.dim_param or "?")
        for dim in value.type.tensor_type.shape.dim
    )


def _with_batch(name: str, declared: Declared | None) -> tuple[Shape, bool]:
    if declared is not None:
        filled = tuple(
            1 if position == 0 and isinstance(extent, str) else extent
            for position, extent in enumerate(declared)
        )
        shape = tuple(extent for extent in filled if isinstance(extent, int))
        if len(shape) == len(filled):
            return shape, filled != declared
    known = "no shape" if declared is None else f"the open shape ({_listed(declared)})"
    raise CliError(f"input {name!r} has {known}; set it with --shape {name}=1,3,224,224 (say)")


def _check_given(name: str, shape: Shape, declared: Declared) -> None:
    fits = len(shape) == len(declared) and all(
        isinstance(wanted, str) or wanted == extent
        for extent, wanted in zip(shape, declared, strict=True)
    )
    if not fits:
        raise CliError(
            f"--shape {name}={','.join(map(str, shape))} contradicts the model, which says "
            f"({_listed(declared)})"
        )


def _listed(items: Any) -> str:
    return ", ".join(map(str, items))
