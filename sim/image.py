"""What a simulator loads: a program whose addresses are known, in terms of no kind of machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.errors import SimError
from tvm_npu.sim.machine_parts import Precision


@dataclass(frozen=True)
class MemoryRange:
    """``size_bytes`` bytes from ``address`` on."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


@dataclass(frozen=True, eq=False)
class CodeImage:
    """Code of one control unit, or of several that run the same.

    The ``words`` [N] lie at ``address``; units start at ``entry_address``. For statistics, events
    and traps each word has its layer in ``layer_of`` [N] (-1: none), the `Stream` that it moves in
    ``stream_of`` [N], and in ``tile_registers`` [N] the registers that hold the indices of its
    tile, by their names.
    """

    words: NDArray[np.uint32]
    address: int
    entry_address: int
    layer_of: NDArray[np.int32]
    stream_of: NDArray[np.int8]
    tile_registers: tuple[Mapping[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class ProgramImage:
    """A program as a machine holds it.

    ``codes`` has one entry, or one for each control unit of the machine, in their order.
    ``content`` is what lies in DRAM before the first run, by address. ``constants``,
    ``activations`` and ``states`` are ranges of DRAM, ``parameter_address`` is where the program's
    table of parameters begins, ``end_address`` where its memory ends. ``layer_precisions`` has the
    numeric type of each layer in ``layer_names``, ``precision`` that of the program's own tensors.
    """

    name: str
    codes: tuple[CodeImage, ...]
    constants: MemoryRange
    activations: MemoryRange
    content: Mapping[int, NDArray[np.uint8]]
    parameter_address: int
    end_address: int
    layer_names: tuple[str, ...]
    layer_precisions: tuple[Precision, ...]
    precision: Precision
    states: MemoryRange = MemoryRange(0, 0)

    @property
    def code(self) -> CodeImage:
        """The code, for machines whose control units all run the same; SimError for several."""
        if len(self.codes) != 1:
            raise SimError(
                f"program {self.name!r} has {len(self.codes)} codes; the machine runs one"
            )
        return self.codes[0]

    def of_one_precision(self) -> Precision:
        """The numeric type of all layers; SimError when they differ."""
        for name, precision in zip(self.layer_names, self.layer_precisions, strict=True):
            if precision != self.precision:
                raise SimError(
                    f"program {self.name!r}: layer {name!r} is {precision}, the program is "
                    f"{self.precision}; the machine computes with one numeric type in a run"
                )
        return self.precision
