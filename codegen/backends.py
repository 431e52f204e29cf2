"""The kinds of machines on this side, by the name of their instruction set: the only list.

A kind from outside is an entry point of the group ``tvm_npu.backends``: its name is the isa, its
value a `Backend`. Nothing of a kind is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.errors import BackendError

if TYPE_CHECKING:
    from tvm_npu.codegen.backend import Backend
    from tvm_npu.sim.description import MachineDescription

ENTRY_POINTS = "tvm_npu.backends"
BUILT_IN = {
    "nmp": "tvm_npu.codegen.nmp.backend:BACKEND",
    "tiles": "tvm_npu.codegen.tiles.backend:BACKEND",
    "snowflake": "tvm_npu.codegen.snowflake.backend:BACKEND",
}


@lru_cache(maxsize=1)
def _outside() -> dict[str, metadata.EntryPoint]:
    points = metadata.entry_points(group=ENTRY_POINTS)
    return {point.name: point for point in points if point.name not in BUILT_IN}


def backend_names() -> tuple[str, ...]:
    """Instruction sets that code can be generated for, built-in ones first."""
    return (*BUILT_IN, *sorted(_outside()))


@lru_cache(maxsize=64)
def backend(isa: str) -> Backend[Any, Any]:
    """The backend called ``isa``; BackendError, with the known ones, for another name."""
    if isa in BUILT_IN:
        module, _, name = BUILT_IN[isa].partition(":")
        built_in: Backend[Any, Any] = getattr(importlib.import_module(module), name)
        return built_in
    if isa in _outside():
        found: Backend[Any, Any] = _outside()[isa].load()
        return found
    known = ", ".join(map(repr, backend_names()))
    raise BackendError(f"no code is generated for machines of isa {isa!r}; there are {known}")


def backend_of(machine: MachineDescription) -> Backend[Any, Any]:
    """The backend of a machine of any kind."""
    return backend(machine.isa)


def images_of_program(machine: MachineDescription) -> int:
    """How many images of a batch a run of a program computes at most: with images "apart", one in
    each core."""
    return 1 if backend_of(machine).apart(machine) is None else machine.core_count


def machine_apart(machine: MachineDescription) -> MachineDescription:
    """The machine as one of several images sees it. BackendError where there are not several."""
    found = backend_of(machine).apart(machine)
    if found is None:
        raise BackendError(
            f"images apart: machine {machine.name!r} computes one image at a time; take images "
            "together, or a machine of several clusters"
        )
    return found  # type: ignore[no-any-return]
