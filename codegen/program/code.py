"""What a backend makes of a region: words and what belongs to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES
from tvm_npu.codegen.program.parts import RELOCATION, CodeRange, LookupTable


@dataclass(frozen=True)
class Code:
    """``words`` are the code (uint32), ``debug`` one record of `parts.DEBUG` a word, ``layers`` the
    parts of each layer in the code images, and ``images`` the parts of ``words`` that control units
    run (none given: one for all of it); ``constants`` are the bytes of that segment, of a multiple
    of its alignment, and ``activation_bytes`` the size of the other: tensors and what the code
    needs beside them."""

    words: NDArray[np.uint32]
    layers: tuple[tuple[CodeRange, ...], ...]
    constants: bytes | bytearray
    activation_bytes: int
    debug: NDArray[Any]
    parameter_offset: int = 0
    scopes: tuple[dict[str, int], ...] = ({},)
    relocations: NDArray[Any] = field(default_factory=lambda: np.array([], RELOCATION))
    images: tuple[CodeRange, ...] = ()
    tables: tuple[LookupTable, ...] = ()
    alignment_bytes: int = ALIGNMENT_BYTES
    """Of the addresses of segments."""
    batch: int = 1
    """Images that a run computes, each in its share of activations and states."""
    start_cycles: tuple[float, ...] = ()
    """What each layer takes beside its plan, as the code itself says (none given: nothing)."""
    layer_cycles: tuple[float, ...] = ()
    """What each layer is expected to take, where the code says it (none given: what its plan
    says)."""
