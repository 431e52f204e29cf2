"""Which scalar register holds which variable of a command tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.expressions import Variable
from tvm_npu.sim.isa.builder import REGISTERS, WORD_BYTES, CodeBuilder

ZERO = REGISTERS["zero"]
CORE_REGISTER = REGISTERS["a0"]
LINE = REGISTERS["a1"]
"""The core's parameter line; moves from layer to layer."""
EXIT_CODE, EXIT_CALL, EXIT = REGISTERS["a0"], REGISTERS["a7"], 93
FREE = tuple(
    REGISTERS[name]
    for name in (
        *(f"s{number}" for number in range(12)), *(f"a{number}" for number in range(2, 8)),
        "ra", "gp", "tp", "sp", *(f"t{number}" for number in range(7)),
    )
)  # fmt: skip
"""Registers for variables (from the front) and temporary values (from the back)."""


class RegisterPressureError(EmitError):
    """More variables and temporary values of the layer number ``layer`` are live than there are
    registers; ``held``: its own variables that have one."""

    def __init__(self, layer: int, held: frozenset[Variable]) -> None:
        super().__init__(f"layer {layer}: more than {len(FREE)} live values")
        self.layer = layer
        self.held = held


class RegisterFile:
    """Registers of variables and temporary values, while code is emitted into ``builder``."""

    def __init__(self, builder: CodeBuilder) -> None:
        self._layer = -1
        self._of_frame: frozenset[Variable] = frozenset()
        self._builder = builder
        self._registers: dict[Variable, int] = {}
        self._free = list(FREE)
        self._taken: list[int] = []
        self._in_line: dict[Variable, int] = {}

    @property
    def bound(self) -> frozenset[Variable]:
        """The variables that have a register."""
        return frozenset(self._registers)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def begin_layer(self, layer: int) -> None:
        """Errors name ``layer`` from here on; what has a register is not its own."""
        self._layer, self._of_frame = layer, self.bound

    def bind(self, variable: Variable, register: int | None = None) -> int:
        """Gives ``variable`` a register (a named one, or any) until `release`."""
        if register is None:
            register = self.take()
        self._registers[variable] = register
        return register

    def release(self, variable: Variable) -> None:
        register = self._registers.pop(variable)
        if register in FREE:
            self._give(register)

    def take(self) -> int:
        """A register for good."""
        if not self._free:
            raise self._too_many()
        return self._free.pop(0)

    def keep_in_line(self, words: Mapping[Variable, int]) -> None:
        """Variables that are loaded from word ``words[...]`` of the core's line wherever they are
        read, and stored there where they are written; replaces those of the call before."""
        self._in_line = dict(words)

    def of(self, variable: Variable) -> int:
        """The register of ``variable``, or a temporary one that it is loaded into."""
        register = self._registers.get(variable)
        if register is None and variable in self._in_line:
            register = self.temporary()
            self._builder.emit("lw", rd=register, rs1=LINE, imm=self._offset(variable))
        if register is None:
            raise EmitError(f"variable {variable.name!r} is read before it has a value")
        return register

    def held(self, register: int) -> Variable | None:
        """The variable that has ``register``."""
        held = (one for one, number in self._registers.items() if number == register)
        return next(held, None)

    def to_write(self, variable: Variable) -> int:
        """The register of ``variable``, which gets one if it has none; a temporary one where it is
        in the line. `written` comes behind the write."""
        if variable in self._registers:
            return self._registers[variable]
        return self.temporary() if variable in self._in_line else self.bind(variable)

    def written(self, variable: Variable, register: int) -> None:
        """Stores ``register``, which `to_write` gave, where ``variable`` is in the line."""
        if variable in self._in_line and variable not in self._registers:
            self._builder.emit("sw", rs1=LINE, rs2=register, imm=self._offset(variable))

    def temporary(self, instead: int | None = None) -> int:
        """A register until the end of the innermost `temporaries`; where none is free, ``instead``,
        whose value is no longer needed."""
        if not self._free:
            if instead is None:
                raise self._too_many()
            return instead
        register = self._free.pop()
        self._taken.append(register)
        return register

    def is_temporary(self, register: int) -> bool:
        """Whether it is one of the innermost `temporaries`."""
        return register in self._taken

    @contextmanager
    def temporaries(self) -> Iterator[None]:
        """Frees, at its end, the temporary registers taken inside."""
        outer, self._taken = self._taken, []
        try:
            yield
        finally:
            for register in self._taken:
                self._give(register)
            self._taken = outer

    def _give(self, register: int) -> None:
        self._free.append(register)
        self._free.sort(key=FREE.index)

    def _offset(self, variable: Variable) -> int:
        return WORD_BYTES * self._in_line[variable]

    def _too_many(self) -> RegisterPressureError:
        return RegisterPressureError(self._layer, self.bound - self._of_frame)
