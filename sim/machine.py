"""Machine descriptions: TOML files, validated, immutable, with units in the key names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from tvm_npu.sim.errors import MachineError
from tvm_npu.sim.machine_parts import (
    ELEMENT_BYTES,
    AddressSpace,
    Cycles,
    Frequency,
    MachineName,
    MemoryBytes,
    Part,
    Precision,
    Rate,
    check_address_space,
)
from tvm_npu.sim.tiles.eplanner_json import eplanner_machine
from tvm_npu.sim.tiles.machine import SHARED, SPLIT, TileMachine, without_alternatives

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "ELEMENT_BYTES",
    "AnyMachine",
    "Machine",
    "Precision",
    "TileMachine",
    "any_machine_from_dict",
    "any_machine_from_toml",
    "load_any_machine",
    "load_machine",
    "machine_from_dict",
    "machine_from_toml",
    "machine_names",
    "stored_element_bytes",
]

LARGEST_SCRATCHPADS = 1 << 30
"""Bytes of all scratchpads of a machine together."""


class Cores(Part):
    """TLEs, the TLTs in each, and what their scalar side costs."""

    tles: Annotated[int, Field(ge=1, le=16)]
    tlts_per_tle: Annotated[int, Field(ge=1, le=32)]
    instruction_cycles: Annotated[int, Field(ge=1, le=100)]
    scalar_memory_cycles: Cycles
    semaphore_cycles: Cycles
    instruction_cache_bytes: Annotated[int, Field(ge=256, le=1 << 24)]
    instruction_line_bytes: Annotated[int, Field(ge=16, le=4096, multiple_of=4)]
    instruction_miss_cycles: Cycles

    @model_validator(mode="after")
    def _cache_holds_a_line(self) -> Cores:
        if self.instruction_cache_bytes < self.instruction_line_bytes:
            raise ValueError(
                f"instruction_cache_bytes = {self.instruction_cache_bytes} does not hold one line; "
                f"at least instruction_line_bytes = {self.instruction_line_bytes}"
            )
        return self


class Mac(Part):
    """The MAC unit of a TLT; ``efficiency`` is the reachable share of the peak rate."""

    datapath_bits: Annotated[int, Field(ge=16, le=8192, multiple_of=16)]
    efficiency: Annotated[float, Field(ge=0.001, le=1)]
    setup_cycles: Cycles
    accumulator_bits: Annotated[int, Field(ge=32, le=63)]


class Memories(Part):
    """Scratchpads of one TLT: MB0 (IN), MB1 (W), MB2 (OUT) and the bias buffer (int32)."""

    mb0_bytes: MemoryBytes
    mb1_bytes: MemoryBytes
    mb2_bytes: MemoryBytes
    bias_bytes: MemoryBytes
    ports: Annotated[int, Field(ge=1, le=2)] = 1
    """1: a transfer and the MAC unit cannot use one memory of a TLT at the same time; 2: they can,
    but not the same bytes of it."""


class Dme(Part):
    """The DMA engine of a TLE."""

    setup_cycles: Cycles
    burst_cycles: Cycles
    linear_burst_cycles: Cycles | None = None
    bytes_per_cycle: Rate
    queue_depth: Annotated[int, Field(ge=1, le=256)]
    semaphores: Annotated[int, Field(ge=11, le=16)]

    @property
    def linear_cycles(self) -> float:
        """``linear_burst_cycles``: what a burst of a 1-D transfer costs; without that key, what
        every burst costs."""
        linear = self.linear_burst_cycles
        return self.burst_cycles if linear is None else linear


class Dram(AddressSpace):
    """The memory that all TLEs share."""

    burst_bytes: Annotated[int, Field(ge=8, le=4096)]
    cas_cycles: Cycles
    bytes_per_cycle: Rate


class Ring(Part):
    """The ring buses: one in each TLE, and the Global Ringbus between the TLEs."""

    bytes_per_cycle: Rate
    hop_cycles: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class Machine(Part):
    """An NMP. `load_machine` makes it; nothing asks a machine for its name to decide."""

    name: MachineName
    isa: Literal["nmp"]
    description: str = ""
    frequency_mhz: Frequency
    default_precision: Precision = "int16"
    cores: Cores
    mac: Mac
    memories: Memories
    dme: Dme
    dram: Dram
    ring: Ring | None = None

    @model_validator(mode="after")
    def _fits_address_space(self) -> Machine:
        check_address_space(self.dram)
        return self

    @model_validator(mode="after")
    def _scratchpads_fit_a_chip(self) -> Machine:
        memories = self.memories
        each = memories.mb0_bytes + memories.mb1_bytes + memories.mb2_bytes + memories.bias_bytes
        total = each * self.core_count
        if total > LARGEST_SCRATCHPADS:
            raise ValueError(
                f"memories.mb0_bytes + mb1_bytes + mb2_bytes + bias_bytes = {each} in each of "
                f"cores.tles * cores.tlts_per_tle = {self.core_count} TLTs are {total} bytes of "
                f"scratchpads; at most {LARGEST_SCRATCHPADS}"
            )
        return self

    @property
    def core_count(self) -> int:
        return self.cores.tles * self.cores.tlts_per_tle

    def macs_per_cycle(self, element_bytes: int) -> int:
        """Peak multiply-accumulates a cycle of one MAC unit."""
        return self.mac.datapath_bits // (8 * element_bytes)

    def with_cores(self, tles: int, tlts_per_tle: int | None = None) -> Machine:
        """This machine with other numbers of TLEs and TLTs (for tests and studies)."""
        per_tle = self.cores.tlts_per_tle if tlts_per_tle is None else tlts_per_tle
        return machine_from_dict(
            {
                **self.model_dump(),
                "name": f"{self.name}-{tles}x{per_tle}",
                "cores": {**self.cores.model_dump(), "tles": tles, "tlts_per_tle": per_tle},
            },
            origin=self.name,
        )


AnyMachine = Machine | TileMachine
"""Every kind of machine that a file can describe; ``isa`` says which."""

def stored_element_bytes(machine: AnyMachine, precision: str) -> int:
    """Bytes that an element takes in the machine's memories."""
    if isinstance(machine, TileMachine):
        return machine.element_bytes("int8" if precision == "int8" else "int16")
    return ELEMENT_BYTES[precision]


_KINDS: dict[str, type[Machine] | type[TileMachine]] = {"nmp": Machine, "tiles": TileMachine}


def machine_names() -> tuple[str, ...]:
    """Names of the machines that come with the package."""
    folder = resources.files("tvm_npu.sim") / "machines"
    files = (item.name for item in folder.iterdir())
    return tuple(sorted(name[: -len(".toml")] for name in files if name.endswith(".toml")))


@lru_cache(maxsize=64)
def _built_in(name: str) -> AnyMachine:
    text = (resources.files("tvm_npu.sim") / "machines" / f"{name}.toml").read_text("utf-8")
    return any_machine_from_toml(text, origin=f"{name}.toml")


def _extended(values: dict[str, object], origin: str) -> dict[str, object]:
    """``values`` with all that they do not say taken from the built-in machine ``extends``, except
    its name and description."""
    base = values.get("extends")
    if base is None:
        return values
    if base not in machine_names():
        known = ", ".join(machine_names())
        raise MachineError(
            f"machine file {origin}: extends: no machine that comes with the package (value: "
            f"{base!r}); there are {known}"
        )
    result = _built_in(str(base)).model_dump(exclude={"name", "description"})
    if result["isa"] == "tiles":
        without_alternatives(result, values)
    for key, value in values.items():
        mine = result.get(key)
        both = isinstance(value, dict) and isinstance(mine, dict)
        result[key] = {**mine, **value} if both else value  # type: ignore[dict-item]
    del result["extends"]
    return result


def load_machine(name_or_path: str | Path) -> Machine:
    """An NMP: a built-in one by name, or a machine file by path.

    Raises MachineError for an unknown name, an unreadable file, a missing or absurd key, and a
    machine that is no NMP.
    """
    return _nmp(load_any_machine(name_or_path))


def load_any_machine(name_or_path: str | Path) -> AnyMachine:
    """`load_machine` for machines of every kind; a ``.json`` file is e-PlaNNer's description."""
    text = str(name_or_path)
    if text in machine_names():
        return _built_in(text)
    path = Path(name_or_path)
    if path.suffix not in _READERS and not path.exists():
        known = ", ".join(machine_names())
        raise MachineError(f"unknown machine {text!r}: neither a file nor one of {known}")
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"cannot read machine file {text!r}: {error}") from error
    return _READERS.get(path.suffix, any_machine_from_toml)(content, text)


def _nmp(machine: AnyMachine) -> Machine:
    if not isinstance(machine, Machine):
        raise MachineError(f"machine {machine.name!r} is of isa {machine.isa!r}; this needs 'nmp'")
    return machine


def machine_from_toml(text: str, origin: str) -> Machine:
    return _nmp(any_machine_from_toml(text, origin))


def machine_from_dict(values: dict[str, object], origin: str = "machine") -> Machine:
    return _nmp(any_machine_from_dict(values, origin))


def any_machine_from_toml(text: str, origin: str) -> AnyMachine:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"machine file {origin}: not TOML: {error}") from error
    return any_machine_from_dict(_extended(values, origin), origin)


def any_machine_from_eplanner(text: str, origin: str) -> AnyMachine:
    """e-PlaNNer's JSON: `sim.tiles.eplanner_json`."""
    base = _built_in("setup-a").model_dump()
    return any_machine_from_dict(eplanner_machine(text, origin, base), origin)


_READERS: dict[str, Callable[[str, str], AnyMachine]] = {
    ".toml": any_machine_from_toml,
    ".json": any_machine_from_eplanner,
}
"""By a file's suffix; files with another one are TOML."""


def any_machine_from_dict(values: dict[str, object], origin: str = "machine") -> AnyMachine:
    """Validates plain values (from TOML, or from a program file)."""
    isa = values.get("isa", "nmp")  # an NMP's file says so if it is missing
    kind = _KINDS.get(isa) if isinstance(isa, str) else None
    if kind is None:
        known = ", ".join(repr(name) for name in _KINDS)
        raise MachineError(f"machine file {origin}: isa: no such kind of machine (value: {isa!r}); "
                           f"there are {known}")  # fmt: skip
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            parts = [str(part) for part in item["loc"] if part not in (SPLIT, SHARED)]
            key = ".".join(parts) or "file"
            if item["type"] == "value_error":  # of several keys; the text names them
                problems.append(f"{key}: {item['ctx']['error']}")
                continue
            given = "" if item["type"] == "missing" else f" (value: {item['input']!r})"
            problems.append(f"{key}: {item['msg']}{given}")
        raise MachineError(f"machine file {origin}: " + "; ".join(problems)) from error
