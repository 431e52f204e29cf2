"""Lookup tables of a region: where they lie in the constants, and how the machine looks them up."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.ops.table import Table
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.parts import LookupTable
from tvm_npu.codegen.snowflake.steps.tables import PlacedTable

WORD: np.dtype[np.int16] = np.dtype("<i2")
WIDENED_BITS = 8
"""By so many bits an argument of 8 bits is shifted to the left, to be one of 16."""


class Tables:
    """Grows by tables; equal ones lie there once. ``entries`` are the program's."""

    def __init__(self, constants: Constants) -> None:
        self.entries: list[LookupTable] = []
        self._constants = constants
        self._placed: dict[tuple[str, bytes], int] = {}

    def add(self, function: str, table: Table, element_bytes: int) -> PlacedTable:
        """The place of ``table``, of values of ``function``.

        A table of 8-bit arguments is looked up by arguments of 16: their lower half, which is 0 but
        for the saturated largest, lies between two entries. The entry behind the last is never
        looked up otherwise; it repeats the last, so that the largest argument finds it."""
        values, shift, bits = table.values.astype(WORD), table.shift, table.bits
        if element_bytes == 1:
            values = np.append(values[:-1], values[-2])
            shift, bits = shift - WIDENED_BITS, bits + WIDENED_BITS
        key = (function, values.tobytes())
        if key not in self._placed:
            offset = self._constants.add(values, WORD, f"table of {function}")
            self._placed[key] = offset
            name = f"{function} {len(self.entries)}"
            self.entries.append(LookupTable(name, function, "int16", len(values), offset))
        return PlacedTable(self._placed[key], len(values), shift, bits)
