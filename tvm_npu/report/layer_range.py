"""Which layers a user asks for: by numbers or names."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_npu.errors import NpuError


class TraceError(NpuError):
    """There is no such layer, or no events."""


def layer_range(text: str, names: Sequence[str]) -> range:
    """``FIRST:LAST`` or one layer, each a number from 1 on, a name, or one of the names that one of
    several layers in one consists of. Raises TraceError."""
    first, colon, last = text.partition(":")
    ends = [_layer_number(one, names) for one in ((first, last) if colon else (text, text))]
    if ends[0] > ends[1]:
        raise TraceError(f"layers {text!r}: {first!r} comes behind {last!r}")
    return range(ends[0], ends[1] + 1)


def _layer_number(text: str, names: Sequence[str]) -> int:
    if text in names:
        return names.index(text)
    joined = [number for number, name in enumerate(names) if text in name.split("+")]
    if len(joined) == 1:
        return joined[0]
    if text.isdigit() and 1 <= int(text) <= len(names):
        return int(text) - 1
    raise TraceError(
        f"no layer {text!r}; layers are numbers from 1 to {len(names)} or names, the first "
        f"{names[0]!r}, the last {names[-1]!r}"
    )
