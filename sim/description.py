"""What every machine description has, whatever its kind: the first part of a machine file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from tvm_npu.sim.machine_parts import (
    ELEMENT_BYTES,
    AddressSpace,
    Energy,
    Frequency,
    MachineName,
    Part,
    Precision,
    check_address_space,
)
from tvm_npu.sim.units import LOADED, STORED, Link, Unit


@dataclass(frozen=True)
class Requantization:
    """Which scales a machine's requantize step can apply. Every one shifts, rounds half up
    (or, where a model says so and the machine multiplies, to even) and saturates; the defaults can
    do no more, so that each tensor has a Q-point."""

    multiplier_bits: int = 0
    """Of the integer that an accumulator is multiplied by before the shift; 0: none."""
    is_per_channel: bool = False
    """Whether each channel can have a shift (and a multiplier) of its own."""
    has_zero_point: bool = False
    bias_bits: int = 32
    """Of a signed bias, where each channel has a shift."""
    most_channel_shift: int = 0
    """By how much the channels' shifts may differ."""


Q_POINTS_ONLY = Requantization()


class MachineDescription(Part):
    """A machine of some kind. `machine_file.load_machine` makes it; ``isa`` names the kind."""

    name: MachineName
    isa: str
    description: str = ""
    frequency_mhz: Frequency
    default_precision: Precision
    dram: AddressSpace
    energy: Energy | None = None

    lowest_address: ClassVar[int] = 0
    """Where the memory outside of the chip may begin: below, scratchpads are mapped."""

    @model_validator(mode="after")
    def _fits_address_space(self) -> MachineDescription:
        check_address_space(self.dram, self.lowest_address)
        return self

    @model_validator(mode="after")
    def _energy_of_what_is_there(self) -> MachineDescription:
        if self.energy is not None:
            parts = {unit.part for unit in self.units() if unit.role == "memory"}
            links = {link.name for link in self.links()}
            for key, given, there in (
                ("memory_byte_pj", self.energy.memory_byte_pj, parts),
                ("link_byte_pj", self.energy.link_byte_pj, links),
            ):
                unknown = sorted(given.keys() - there)
                if unknown:
                    known = ", ".join(sorted(there))
                    raise ValueError(f"energy.{key}.{unknown[0]}: the machine has only {known}")
        return self

    @model_serializer(mode="wrap")
    def _without_unknown_energy(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        if values.get("energy", ...) is None:
            del values["energy"]  # as files have it that are older than the key
        return values

    @property
    def core_count(self) -> int:
        """Units that multiply beside each other, each with its own program counter."""
        return 1

    @property
    def device_count(self) -> int:
        """Equal devices, each with its own memory, that run beside each other; a `Simulator` is one
        of them, and all other numbers here are a device's."""
        return 1

    def macs_per_cycle(self, element_bytes: int) -> float:
        """Peak multiply-accumulates a cycle of one core."""
        raise NotImplementedError

    @property
    def dram_bytes_per_cycle(self) -> float | None:
        """The most bytes a cycle between a device and the memory outside of the chip: the slope of
        its roofline; None where that cannot be said."""
        return None

    def stored_element_bytes(self, precision: Precision) -> Literal[1, 2, 4]:
        """Bytes that an element takes in the machine's memories."""
        return ELEMENT_BYTES[precision]

    def requantization(self, precision: Precision) -> Requantization:
        """What the requantize step can do with numbers of a precision; Q-points only unless a
        kind says more."""
        return Q_POINTS_ONLY

    def units(self) -> tuple[Unit, ...]:
        """Rows of statistics, lanes of traces, and memories: control units, units that compute,
        units that move data, memories on the chip, ``dram``."""
        raise NotImplementedError

    def links(self) -> tuple[Link, ...]:
        """Ways of data between memories."""
        return LOADED, STORED
