"""State without reference counts, for compiled code whose caller keeps it alive.

Counting is atomic: taking an array out of a state, a row out of an array, or handing the state on,
can cost more than what is done with it. (`device` without ``references`` does not count either,
but cannot read a state that is one object.)
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.experimental import structref
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


class Uncounted(types.StructRef):  # type: ignore[misc]
    """A structref of the same fields that owns nothing."""


@register_default(Uncounted)
class _UncountedModel(models.StructRefModel):  # type: ignore[misc]
    def traverse(self, builder: Any) -> list[Any]:
        """What is counted: nothing."""
        return []


structref.define_attributes(Uncounted)


@intrinsic
def borrowed(typing_context: Any, arrays: Any) -> Any:
    """The arrays of a tuple as they are, but owned by nobody."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = []
        for index, kind in enumerate(arrays):
            array = make_array(kind)(context, builder, builder.extract_value(arguments[0], index))
            for owner in ("meminfo", "parent"):
                setattr(array, owner, getattr(array, owner).type(None))
            parts.append(array._getvalue())
        return context.make_tuple(builder, arrays, parts)

    return arrays(arrays), generate


@intrinsic
def uncounted(typing_context: Any, owner: Any) -> Any:
    """A structref for functions that only read its fields. Its maker has to use ``owner`` once
    more behind them, or it goes before they end."""
    view = Uncounted(tuple(owner.field_dict.items()))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.data_model_manager[owner]
        pointer = source.get(builder, arguments[0], 0)
        target = context.data_model_manager[view]
        begin = target.get_value_type()(None)
        return target.set(builder, begin, pointer, 0)

    return view(owner), generate
