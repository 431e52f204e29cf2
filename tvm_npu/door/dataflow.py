"""A model as doors show it to rules and importer: operator calls on tensors, no TVM type in it.

A `Dataflow` is what hangs on its outputs. Its calls come in post-order, operands first: the order
hangs on the graph alone, so the same model gets the same regions, tensor names and programs
through every door, in whatever order a TVM keeps its statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.door.operators import MISSING, Attribute, read_attributes
from tvm_npu.sim.lazy import cached_property

Array = NDArray[Any]
TensorShape = tuple[int, ...]


@dataclass(frozen=True)
class TensorType:
    """``shape`` has the batch in front; an extent that is only known at run time is a string, its
    name or "?"."""

    shape: tuple[int | str, ...]
    dtype: str = "float32"

    @property
    def static_shape(self) -> TensorShape | None:
        """None when an extent is not known."""
        extents = tuple(extent for extent in self.shape if isinstance(extent, int))
        return extents if len(extents) == len(self.shape) else None

    def __str__(self) -> str:
        return f"Tensor[({', '.join(map(str, self.shape))}), {self.dtype}]"


@dataclass(frozen=True, eq=False)
class Value:
    """What an operator reads: one tensor, or with ``is_tuple`` a tuple in one piece."""

    types: tuple[TensorType, ...]
    is_tuple: bool = field(default=False, kw_only=True)

    @property
    def type(self) -> TensorType:
        """Of a tensor."""
        if self.is_tuple:
            raise ValueError(f"a tuple of {len(self.types)} tensors, not one tensor")
        return self.types[0]

    @property
    def shape(self) -> TensorShape:
        """Of a tensor whose rules have been checked."""
        return static(self.type)


@dataclass(frozen=True, eq=False)
class Input(Value):
    """A tensor that comes from outside: an input of the model or of a region."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class Constant(Value):
    """A weight or another constant; ``load`` makes its array, which is not kept here."""

    load: Callable[[], Array] = field(kw_only=True)

    @property
    def array(self) -> Array:
        return self.load()


@dataclass(frozen=True)
class Result(Value):
    """What a call computes: with an empty ``path`` its only tensor, or its tuple in one piece; else
    the part of its tuple at those positions. Equal for the same part of the same call."""

    types: tuple[TensorType, ...] = field(compare=False)
    is_tuple: bool = field(default=False, kw_only=True, compare=False)
    call: OpCall = field(kw_only=True)
    path: tuple[int, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class OpCall:
    """One call. ``name`` is neutral (`door.operators`); "" for what is no call of an operator.

    ``spelling`` is how the door's TVM calls the operator: what users read. ``source`` names the
    operator in the user's model ("" when nobody knows). ``types`` are those of all results;
    ``returns_tuple`` also when there is one. ``is_call`` is False for control flow, which counts
    as one node. Attributes are read when first asked for: those of an operator with open shapes
    may have no form.
    """

    name: str
    operands: tuple[Value, ...] = field(repr=False)
    types: tuple[TensorType, ...]
    spelling: str = ""
    source: str = ""
    returns_tuple: bool = False
    is_call: bool = True
    raw_attribute: Callable[[str], Any] = field(default=lambda name: MISSING, repr=False)

    @cached_property
    def attributes(self) -> Mapping[str, Attribute]:
        return read_attributes(self.name, self.raw_attribute)

    @property
    def shape(self) -> TensorShape:
        """Of the one result, once rules have been checked."""
        if self.returns_tuple:
            raise ValueError(f"{self.spelling} returns a tuple, not one tensor")
        return static(self.types[0])

    @property
    def run_time_operands(self) -> tuple[Value, ...]:
        """Constants left out."""
        return tuple(one for one in self.operands if not isinstance(one, Constant))

    def result(self, position: int | None = None) -> Result:
        """The only tensor, or the one at ``position`` of the tuple."""
        if position is None:
            return Result(self.types, is_tuple=self.returns_tuple, call=self)
        return Result((self.types[position],), call=self, path=(position,))


def origin(value: Value) -> str:
    """What the user's model calls the maker of a value: an operator or an input; of an operator
    without a name, how TVM calls it and what it reads: ``log(x)``."""
    if not isinstance(value, Result) or value.call.source:
        return _name(value)
    names = (_name(one) or "..." for one in value.call.run_time_operands)
    return f"{value.call.spelling}({', '.join(names)})"


def _name(value: Value) -> str:
    """"" where there is none."""
    if isinstance(value, Result):
        return value.call.source
    return value.name if isinstance(value, Input) else ""


def static(type_: TensorType) -> TensorShape:
    """The shape of a tensor; ValueError when an extent is not known."""
    shape = type_.static_shape
    if shape is None:
        raise ValueError(f"{type_} has no static shape")
    return shape


Values = tuple[Any, ...]
"""Of a tuple that is written out: each a Value, or Values again."""


def flat(values: Sequence[Value | Values]) -> tuple[Value, ...]:
    """Single values, those of tuples that are written out one after another."""
    found: list[Value] = []
    for value in values:
        found += flat(value) if isinstance(value, tuple) else [value]
    return tuple(found)


def part(
    value: Value | Values, position: int, types: tuple[TensorType, ...], is_tuple: bool
) -> Value | Values:
    """What stands at ``position`` of a tuple; ``types`` and ``is_tuple`` are the part's own."""
    if isinstance(value, tuple):
        written: Value | Values = value[position]
        return written
    if isinstance(value, Result):
        return Result(types, is_tuple=is_tuple, call=value.call, path=(*value.path, position))
    return Input(types, is_tuple=is_tuple, name=f"{getattr(value, 'name', '')}.{position}")


def values_of(data: Any) -> Array:
    """The values of a tensor of TVM's; large ones, which are float32, as TVM holds them, to be
    read."""
    if str(data.dtype) != "float32":
        return np.asarray(data.numpy())
    values = np.from_dlpack(data)
    values.flags.writeable = False
    return values


def constant(array: Any) -> Constant:
    """A constant that is already in memory."""
    values = np.asarray(array)
    return Constant((TensorType(values.shape, str(values.dtype)),), load=lambda: values)


@dataclass(frozen=True, eq=False)
class Dataflow:
    """A function: what its outputs need of its inputs. ``inputs`` may be results of calls that lie
    outside (a region's are); ``returns_tuple`` also when there is one output."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    returns_tuple: bool = False

    @cached_property
    def calls(self) -> tuple[OpCall, ...]:
        """In post-order from the outputs, operands first, each once; needs no recursion."""
        found: list[OpCall] = []
        seen: set[OpCall] = set()
        stack: list[tuple[OpCall | None, Iterator[OpCall]]] = [(None, self._makers(self.outputs))]
        while stack:
            call, rest = stack[-1]
            for below in rest:
                if below not in seen:
                    seen.add(below)
                    stack.append((below, self._makers(below.operands)))
                    break
            else:
                stack.pop()
                if call is not None:
                    found.append(call)
        return tuple(found)

    @cached_property
    def _outside(self) -> frozenset[Value]:
        return frozenset(self.inputs)

    def _makers(self, values: tuple[Value, ...]) -> Iterator[OpCall]:
        return (
            value.call
            for value in values
            if isinstance(value, Result) and value not in self._outside
        )

    @cached_property
    def number_of(self) -> Mapping[OpCall, int]:
        return {call: number for number, call in enumerate(self.calls)}

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the calls that each call reads, all below its own."""
        return tuple(
            tuple(dict.fromkeys(self.number_of[maker] for maker in self._makers(call.operands)))
            for call in self.calls
        )

    def uses(self) -> Iterator[tuple[OpCall | None, Value]]:
        """(reader, value): every operand of every call, then the outputs (reader None)."""
        for call in self.calls:
            for operand in call.operands:
                yield call, operand
        for output in self.outputs:
            yield None, output

    @property
    def constants(self) -> tuple[Constant, ...]:
        """All that calls read, each once."""
        found = (value for _, value in self.uses() if isinstance(value, Constant))
        return tuple(dict.fromkeys(found))
