"""Before partitioning: parameters become constants, and spellings of TVM's frontends those that
rules know.

Batch norms, biases and channel-wise constants are left as they are: the importer reads them and
`codegen.fuse` folds them into convolutions, so every operator keeps its source name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.folding import folded_for_rules
from tvm_npu.relax.quantized import is_quantized, rounded_numbers, without_integers
from tvm_npu.relax.rewriting import Change, rewrite_calls
from tvm_npu.relax.spelling import plain_spelling


def normalize(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    """A copy of ``mod`` without dataflow blocks, ready for the rules.

    Raises PartitionError without a main function or for parameters that fit no variable.
    """
    if "main" not in [of.name_of(var) for var in mod.get_global_vars()]:
        raise PartitionError("the module has no function 'main'")
    known = _known(mod["main"], params or {})
    mod = with_main(mod, folded_for_rules, known)
    if is_quantized(mod["main"]):
        for change in (rounded_numbers, without_integers):
            mod = with_main(mod, change)
    return with_main(mod, plain_spelling)


def with_main(
    mod: tvm.IRModule, change: Change, known: Mapping[Any, Any] | None = None
) -> tvm.IRModule:
    """A copy of ``mod`` whose main is rewritten; see `rewrite_calls`."""
    main = rewrite_calls(mod["main"], change, known)
    builder = relax.BlockBuilder(mod)
    builder.update_func(mod.get_global_var("main"), main)
    return relax.transform.Normalize()(builder.get())


def _known(main: relax.Function, params: Mapping[str, Any]) -> dict[Any, Any]:
    """Constants by variable. ``params`` are given by name, or as `relax.frontend.detach_params`
    gives them: a list for main."""
    variables = {of.name_of(var): var for var in main.params}
    listed = params.get("main") if "main" not in variables else None
    if isinstance(listed, list | tuple) or (listed is not None and not hasattr(listed, "shape")):
        last = list(main.params)[len(main.params) - len(listed) :]
        params = {of.name_of(var): value for var, value in zip(last, listed, strict=True)}
    bound = {}
    for name, value in params.items():
        if name not in variables:
            continue
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        type_ = variables[name].ty
        shape = of.static_shape(type_)
        if shape is not None and tuple(array.shape) != shape:
            raise PartitionError(
                f"parameter {name!r} has shape {tuple(array.shape)}, the model wants {shape}"
            )
        if str(array.dtype) != of.dtype_of(type_):
            raise PartitionError(
                f"parameter {name!r} is {array.dtype}, the model wants {of.dtype_of(type_)}"
            )
        bound[variables[name]] = relax.const(array)
    return bound
