"""Pools as ONNX means them.

With ``ceil_mode`` ONNX counts no window that would begin behind the input, in the padding at its
end; TVM 0.19 does. ``storage_order`` is one of indices; TVM takes it for channels behind columns.
The norms of LpPool are those of absolute values. Indices of MaxUnpool are places of the tensor that
was pooled, also where a larger one is asked for; TVM takes them for places of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for cls in (reader.Pool, reader.QLinearAveragePool):
        yield cls, "_impl_v1", _with_its_windows(cls._impl_v1.__func__)
    yield (
        reader.LpPool,
        "_impl_v1",
        _with_its_windows(_of_magnitudes(reader.LpPool._impl_v1.__func__)),
    )
    yield reader.MaxUnpool, "_impl_v11", _of_its_own_extents


_UNPOOL = reader.MaxUnpool._impl_v11.__func__


def _of_its_own_extents(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    """A MaxUnpool that asks for the extents that it has anyway."""
    data, indices, asked = [*inputs, None][:3]
    if asked is not None:
        kernel = list(attr["kernel_shape"])
        strides = attr.get("strides") or [1] * len(kernel)
        pads = attr.get("pads") or [0] * 2 * len(kernel)
        shape = list(reader.infer_shape(data))
        own = shape[:2] + [
            (extent - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[len(kernel) + axis]
            for axis, extent in enumerate(shape[2:])
        ]
        given = asked.data.numpy().tolist() if isinstance(asked, relay.Constant) else "computed"
        if given != own:
            raise PartitionError(
                f"{called_in('MaxUnpool', attr)} asks for the extents "
                f"{given}; TVM 0.19 can make {own} alone: pad behind it"
            )
    return _UNPOOL(cls, [data, indices, None], attr, params)


def _of_magnitudes(convert: Callable[..., Any]) -> Callable[..., Any]:
    def pool(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        return convert(cls, [relay.abs(inputs[0])], attr, params)

    return pool


def _with_its_windows(convert: Callable[..., Any]) -> Callable[..., Any]:
    def pool(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        attr.pop("storage_order", None)
        if attr.get("ceil_mode", 0) and "auto_pad" not in attr:
            _leave_out_empty_windows(inputs[0], attr)
        return convert(cls, inputs, attr, params)

    return pool


def _leave_out_empty_windows(data: Any, attr: Any) -> None:
    """Takes what is behind the last window from the padding of axes whose last window would be
    empty, or ``ceil_mode`` itself where no axis needs it. Extents that are open stay as they are.

    before: 8 rows, window 1, stride 2, ceil_mode: 5 windows        after: 4
    """
    count = len(attr["kernel_shape"])
    extents = reader.infer_shape(data)[-count:]
    pads = list(attr.get("pads", ())) or [0] * 2 * count
    strides = attr.get("strides") or [1] * count
    dilations = attr.get("dilations") or [1] * count
    needed = False
    cut = list(pads)
    for axis, extent in enumerate(extents):
        if not isinstance(extent, int):
            return
        window = (attr["kernel_shape"][axis] - 1) * dilations[axis] + 1
        begin, end = pads[axis], pads[count + axis]
        room = extent + begin + end - window
        rest = room % strides[axis]
        if not rest:
            continue
        if room - rest + strides[axis] >= extent + begin:
            cut[count + axis] = end - rest
        else:
            needed = True
    if not needed:
        attr["ceil_mode"] = 0
    elif cut != pads:
        if min(cut) < 0:
            raise PartitionError(
                f"{called_in('pool', attr)} has ceil_mode, windows "
                f"{list(attr['kernel_shape'])}, strides {list(strides)} and pads {pads}: along one "
                "axis its last window would be empty, which TVM 0.19 cannot leave out; pad the "
                "input by a Pad"
            )
        attr["pads"] = cut
