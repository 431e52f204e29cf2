"""The vocabulary that doors and rules share: operators by neutral names, attributes in one form.

An operator is called as NumPy or the literature calls it (``conv2d``, ``add``); a door translates
the spelling of its TVM. Operands are the tensors that an operator computes with, in Relay's order;
the parts of a tuple stand one after another. All other choices are attributes: whole numbers,
floats, strings, or tuples of them.

An operator that is not listed may appear in a dataflow, too; nothing asks for its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Attribute = Any
"""int, float, str, bool, None or a tuple of these."""

REQUIRED = object()


def integers(values: Any) -> tuple[int, ...]:
    """One number or several as a tuple; None is no number."""
    if values is None:
        return ()
    return (values,) if isinstance(values, int) else tuple(int(value) for value in values)


def integer_or_integers(values: Any) -> int | tuple[int, ...]:
    return values if isinstance(values, int) else integers(values)


def pair(values: Any) -> tuple[int, int]:
    """(rows, columns) of one number or two."""
    found = integers(values)
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])


def padding(values: Any) -> tuple[int, int, int, int]:
    """TVM's one, two or four amounts as (top, left, bottom, right)."""
    found = integers(values)
    if len(found) == 4:
        return (found[0], found[1], found[2], found[3])
    vertical, horizontal = pair(values)
    return (vertical, horizontal, vertical, horizontal)


def _pairs(values: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(integers(both) for both in values)


def _name(value: Any) -> str:
    return "" if value is None else str(value)


Form = Callable[[Any], Attribute]
Schema = Mapping[str, tuple[Form, Any]]
"""name -> (form, default)."""

_LAYOUTS: Schema = {"layout": (str, "NCHW"), "out_layout": (str, "")}
_WINDOW: Schema = {
    "pool_size": (pair, REQUIRED),
    "strides": (pair, (1, 1)),
    "dilation": (pair, (1, 1)),
    "padding": (padding, (0, 0)),
    **_LAYOUTS,
}
_WEIGHT_LAYOUTS: Schema = {
    "groups": (int, 1),
    "data_layout": (str, "NCHW"),
    "kernel_layout": (str, "OIHW"),
    "out_layout": (str, ""),
}
_CONVOLUTION: Schema = {"kernel_size": (integers, ()), **_WEIGHT_LAYOUTS}
_BLOCKS: Schema = {"block_size": (int, REQUIRED), "layout": (str, "NCHW")}
_AXIS: Schema = {"axis": (int, REQUIRED)}

ATTRIBUTES: Mapping[str, Schema] = {
    # data [N, C, H, W], weight [M, C / groups, kernel_h, kernel_w]
    "conv2d": {
        "strides": (pair, (1, 1)),
        "padding": (padding, (0, 0)),
        "dilation": (pair, (1, 1)),
        **_CONVOLUTION,
    },
    # data [N, C, H, W], weight [C, M / groups, kernel_h, kernel_w]
    "conv2d_transpose": {
        "strides": (pair, (1, 1)),
        "padding": (padding, (0, 0)),
        "output_padding": (pair, (0, 0)),
        "dilation": (pair, (1, 1)),
        **_CONVOLUTION,
        "kernel_layout": (str, "IOHW"),
    },
    # data [N, K], weight [M, K]
    "dense": {},
    # data [N, K], weight [K, M]; either transposed
    "matmul": {"transpose_a": (bool, False), "transpose_b": (bool, False)},
    "bias_add": {"axis": (int, 1)},
    # data, gamma, beta, mean, variance; three results, the first the normalised data
    "batch_norm": {
        "axis": (int, 1),
        "epsilon": (float, 1e-5),
        "center": (bool, True),
        "scale": (bool, True),
    },
    "relu": {},
    "sigmoid": {},
    "tanh": {},
    "exp": {},
    "erf": {},
    "log": {},
    "sqrt": {},
    "abs": {},
    "round": {},
    "softmax": {"axis": (int, -1)},
    # data, one slope a channel
    "prelu": {"axis": (int, 1)},
    "leaky_relu": {"alpha": (float, REQUIRED)},
    "clip": {"a_min": (float, REQUIRED), "a_max": (float, REQUIRED)},
    "maximum": {},
    "minimum": {},
    "max_pool2d": _WINDOW,
    "avg_pool2d": {**_WINDOW, "count_include_pad": (bool, False)},
    "global_max_pool2d": _LAYOUTS,
    "global_avg_pool2d": _LAYOUTS,
    "adaptive_max_pool2d": _LAYOUTS,
    "adaptive_avg_pool2d": _LAYOUTS,
    # axis: those to reduce; with exclude all others
    "mean": {"axis": (integers, ()), "exclude": (bool, False)},
    "add": {},
    "multiply": {},
    "subtract": {},
    "divide": {},
    "negative": {},
    "concatenate": _AXIS,
    # the number of equal parts, or where the second and later parts begin; a tuple of results
    "split": {**_AXIS, "indices_or_sections": (integer_or_integers, REQUIRED)},
    "batch_flatten": {},
    "reshape": {},
    "squeeze": {},
    "expand_dims": {},
    # data, fill value; pad_width: (before, after) of every axis
    "pad": {"pad_width": (_pairs, REQUIRED), "pad_mode": (str, "constant")},
    # data alone; mode REFLECT or SYMMETRIC (the outermost once more)
    "mirror_pad": {"pad_width": (_pairs, REQUIRED), "mode": (str, "SYMMETRIC")},
    # slice_mode "end": begin up to end; "size": end holds sizes, -1 is the rest
    "strided_slice": {
        "begin": (integers, REQUIRED),
        "end": (integers, REQUIRED),
        "strides": (integers, ()),
        "axes": (integers, ()),
        "slice_mode": (str, "end"),
    },
    # axes: which axis of the data each of the result is; none: the order turned round
    "transpose": {"axes": (integers, ())},
    # along one axis, the last index first
    "reverse": _AXIS,
    # blocks of block_size x block_size between channels and rows, columns; the channels count the
    # row in the block, its column, and the channel (with mode CDR the channel first)
    "depth_to_space": {**_BLOCKS, "mode": (str, "DCR")},
    "space_to_depth": _BLOCKS,
    # method: nearest_neighbor or bilinear
    "upsampling": {
        "layout": (str, "NCHW"),
        "method": (str, "nearest_neighbor"),
        "align_corners": (bool, False),
    },
    # method: nearest_neighbor, linear or cubic
    "image.resize2d": {
        "layout": (str, "NCHW"),
        "method": (str, "linear"),
        "coordinate_transformation_mode": (str, "half_pixel"),
        "rounding_method": (str, ""),
        "cubic_alpha": (float, -0.5),
        "cubic_exclude": (int, 0),
        "out_dtype": (_name, ""),
    },
    # tensors of one shape behind one another along a new axis
    "stack": {"axis": (int, 0)},
    # Only their work is asked for: they stay on the CPU.
    "batch_matmul": {"transpose_a": (bool, False), "transpose_b": (bool, False)},
    **dict.fromkeys(
        (
            "conv1d", "conv3d", "conv1d_transpose", "conv3d_transpose", "deformable_conv2d",
            "contrib_conv2d_NCHWc", "contrib_depthwise_conv2d_NCHWc",
            "contrib_conv2d_gemm_without_weight_transform",
            "contrib_conv2d_winograd_without_weight_transform",
            "contrib_conv3d_winograd_without_weight_transform",
        ),
        _CONVOLUTION,
    ),
}  # fmt: skip
"""operator -> its attributes."""

MISSING = object()


def read_attributes(operator: str, raw: Callable[[str], Any]) -> dict[str, Attribute]:
    """The attributes of an operator in their one form.

    ``raw`` gives what a door found under a name, in plain Python, or `MISSING`. Raises ValueError
    that names an attribute without which the operator means nothing.
    """
    found = {}
    for name, (form, default) in ATTRIBUTES.get(operator, {}).items():
        value = raw(name)
        if value is MISSING:
            value = default
        if value is REQUIRED:
            raise ValueError(f"operator {operator!r} has no attribute {name!r}")
        found[name] = form(value)
    return found
