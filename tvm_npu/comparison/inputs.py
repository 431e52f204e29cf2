"""A model's inputs by its ONNX file alone, and samples of them in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.door.onnx.batch import with_batch_axes


def onnx_inputs(
    model: Any, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[InputSpec, ...]:
    """The inputs of an onnx.ModelProto that are no weights; ``shapes`` are those of all."""
    from onnx.helper import tensor_dtype_to_np_dtype

    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    inputs = tuple(
        InputSpec(name, shape, str(tensor_dtype_to_np_dtype(types[name])))
        for name, shape in shapes.items()
    )
    return with_batch_axes(model, inputs)


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """An .npz file that `read_samples` reads; the number of samples. Names of inputs can be any
    text, so they stand in an array of their own."""
    arrays: dict[str, Any] = {}
    names: list[str] = []
    count = 0
    for sample in samples:
        names = names or sorted(sample)
        for number, name in enumerate(names):
            arrays[f"{count}.{number}"] = sample[name]
        count += 1
    np.savez(path, names=np.array(names, dtype=str), count=np.array(count), **arrays)
    return count


def read_samples(path: Path) -> Iterator[Sample]:
    """One after the other."""
    with np.load(path, allow_pickle=False) as file:
        names = [str(name) for name in file["names"]]
        for number in range(int(file["count"])):
            yield {name: file[f"{number}.{index}"] for index, name in enumerate(names)}
