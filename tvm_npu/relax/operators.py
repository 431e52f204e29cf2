"""Relax's operators as rules know them: neutral names, operands and attributes.

Most are called as in Relay, with the prefix ``relax.`` or ``relax.nn.``, and keep their attributes'
names. What differs stands here. Where Relax hands over numbers as arguments, they are attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_npu.door.operators import MISSING
from tvm_npu.relax import expressions as of

Read = Callable[[Any], Any]
"""An attribute's value of a call, or `MISSING`."""


@dataclass(frozen=True)
class Spelling:
    """How Relax writes an operator. ``operands``: arguments that are tensors (None: all those that
    are tensors); ``attributes``: those that are not kept under their own names in ``attrs``;
    ``fill``: a number that rules read as a constant operand behind the others."""

    name: str
    operands: tuple[int, ...] | None = None
    attributes: Mapping[str, Read] = field(default_factory=dict)
    fill: Read | None = None


def _argument(position: int) -> Read:
    def read(call: Any) -> Any:
        return of.plain(call.args[position]) if position < len(call.args) else MISSING

    return read


def _attribute(name: str) -> Read:
    return lambda call: of.plain(getattr(call.attrs, name))


def _pad_pairs(call: Any) -> Any:
    flat = of.plain(call.attrs.pad_width)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


SPELLINGS: Mapping[str, Spelling] = {
    "relax.concat": Spelling("concatenate"),
    "relax.nn.leakyrelu": Spelling("leaky_relu"),
    "relax.permute_dims": Spelling("transpose"),
    "relax.astype": Spelling("cast"),
    "relax.clip": Spelling(
        "clip", operands=(0,), attributes={"a_min": _argument(1), "a_max": _argument(2)}
    ),
    "relax.strided_slice": Spelling(
        "strided_slice",
        operands=(0,),
        attributes={
            "axes": _argument(1),
            "begin": _argument(2),
            "end": _argument(3),
            "strides": _argument(4),
        },
    ),
    "relax.nn.pad": Spelling(
        "pad",
        operands=(0,),
        attributes={"pad_width": _pad_pairs, "pad_mode": _attribute("pad_mode")},
        fill=_attribute("pad_value"),
    ),
    "relax.reshape": Spelling("reshape", operands=(0,)),
}
"""Operators whose names, operands or attributes differ."""


def spelling_of(call: Any) -> Spelling:
    """Of a call; its name is "" for what is no call of an operator."""
    name = of.op_name(call)
    known = SPELLINGS.get(name)
    return known or Spelling(name.removeprefix("relax.").removeprefix("nn."))


def attribute_reader(call: Any) -> Callable[[str], Any]:
    """What rules ask for by neutral names."""
    own = spelling_of(call).attributes

    def read(name: str) -> Any:
        if name in own:
            return own[name](call)
        value = getattr(call.attrs, name, MISSING) if call.attrs is not None else MISSING
        return value if value is MISSING else of.plain(value)

    return read


def tensor_arguments(call: Any) -> list[Any]:
    """The arguments that are tensors or tuples of them."""
    chosen = spelling_of(call).operands
    if chosen is not None:
        return [call.args[position] for position in chosen]
    return [arg for arg in call.args if of.is_value(arg)]
