"""Arrays without reference counts, for compiled code whose caller keeps them alive.

Counting is atomic: taking an array out of a state, or a row out of an array, can cost more than
what is done with it. (`device` without ``references`` does not count either, but cannot read a
state that is one object.)
"""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic
from numba.np.arrayobj import make_array


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
