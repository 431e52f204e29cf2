"""What the configuration registers hold, and which words bring them to other values: for what emits
these words and for what counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tvm_npu.codegen.errors import EmitError
from tvm_npu.sim.tiles.isa import TILE_ISA, TileRegister

_TSET, _TSETU = TILE_ISA.by_mnemonic["tset"], TILE_ISA.by_mnemonic["tsetu"]
_LOW_BITS = _TSET.field("imm").width
_LOW_MASK = (1 << _LOW_BITS) - 1
_SIGN = 1 << (_LOW_BITS - 1)
_HIGH_MASK = (1 << _TSETU.field("upper").width) - 1


class Setting(NamedTuple):
    """A word that sets a register to a number of few bits, or the upper half of one."""

    register: TileRegister
    number: int
    is_upper: bool

    def encode(self) -> int:
        if self.is_upper:
            return _TSETU.encode(creg=self.register, upper=self.number)
        return _TSET.encode(creg=self.register, imm=self.number)


class Registers:
    """Those of a program, which hold nothing that is known at its begin."""

    def __init__(self) -> None:
        self._held: dict[TileRegister, int] = {}

    def set(self, wanted: Mapping[TileRegister, int]) -> list[Setting]:
        """Words that bring registers to these values, none for those that hold them. A low half
        fills the upper one with its sign, which then may have to come again.

        Raises EmitError for a value that is no 32-bit number."""
        words = []
        for register, value in wanted.items():
            held = self._held.get(register)
            if held == value:
                continue
            if not -(1 << 31) <= value < 1 << 32:
                raise EmitError(f"register {register.name} = {value} does not fit in 32 bits")
            if held is None or (held ^ value) & _LOW_MASK:
                held = ((value & _LOW_MASK) ^ _SIGN) - _SIGN
                words.append(Setting(register, held, False))
            if held != value:
                words.append(Setting(register, (value >> _LOW_BITS) & _HIGH_MASK, True))
            self._held[register] = value
        return words
