"""A state as one address, for compiled code that its caller keeps alive.

A named tuple of many arrays is some 500 values that every call would hand on; numba's structref is
one, but counts references, and counting is atomic: taking an array out of a state, or a row out of
an array, can cost more than what is done with it. A view is the address of the named tuple in the
memory of the `entry` that made it. What it gives is owned by nobody, so `device` functions that
take one are compiled without ``references``: less to compile, and nothing to count.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic


class View(types.Type):  # type: ignore[misc]
    """The address of a named tuple, whose numba type is ``fields``; known by a short name, because
    numba compares and writes types with every call."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields
        name = fields.instance_class.__name__
        super().__init__(f"{name}View{hashlib.sha256(str(fields).encode()).hexdigest()[:16]}")


@register_default(View)
class _ViewModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: View) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@infer_getattr
class _ViewAttribute(AttributeTemplate):  # type: ignore[misc]
    key = View

    def generic_resolve(self, view: View, name: str) -> Any:  # type: ignore[override]
        names = view.fields.fields
        return view.fields.types[names.index(name)] if name in names else None


@lower_getattr_generic(View)
def _field(context: Any, builder: Any, view: View, address: Any, name: str) -> Any:
    number = view.fields.fields.index(name)
    kind = context.get_value_type(view.fields)
    place = cgutils.gep_inbounds(builder, builder.bitcast(address, kind.as_pointer()), 0, number)
    value = builder.load(place)
    return impl_ret_borrowed(context, builder, view.fields.types[number], value)


@intrinsic
def view_of(typing_context: Any, fields: Any) -> Any:
    """The view of a named tuple, for functions that return before its maker does."""
    view = View(fields)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        room = cgutils.alloca_once_value(builder, arguments[0])
        return builder.bitcast(room, context.get_value_type(view))

    return view(fields), generate
