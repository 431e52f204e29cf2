"""What a backend makes of a region: words and what belongs to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.program.parts import RELOCATION


@dataclass(frozen=True)
class Code:
    """``words`` are the code image (uint32), ``debug`` one record of `parts.DEBUG` a word, and
    ``layer_ranges`` the bytes of each layer in it; ``constants`` the bytes of that segment, of a
    multiple of its alignment, and ``activation_bytes`` the size of the other: tensors and what the
    code needs beside them."""

    words: NDArray[np.uint32]
    layer_ranges: tuple[tuple[int, int], ...]
    constants: bytes
    activation_bytes: int
    debug: NDArray[Any]
    parameter_offset: int = 0
    scopes: tuple[dict[str, int], ...] = ({},)
    relocations: NDArray[Any] = field(default_factory=lambda: np.array([], RELOCATION))
