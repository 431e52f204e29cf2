"""The kinds of machines, by the name of their instruction set: the only list on this side.

A kind from outside is an entry point of the group ``tvm_npu.machine_kinds``: its name is the isa,
its value an object like those of `BUILT_IN`. Nothing of a kind is imported before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import MachineError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

ENTRY_POINTS = "tvm_npu.machine_kinds"
BUILT_IN = {
    "nmp": "tvm_npu.sim.nmp.kind:KIND",
    "snowflake": "tvm_npu.sim.snowflake.kind:KIND",
    "tiles": "tvm_npu.sim.tiles.kind:KIND",
}

FileReader = tuple[Callable[[str, str, Mapping[str, Any]], dict[str, Any]], str]
"""(reads (text, origin, values of the base machine) -> values to validate, name of the base)."""


class MachineKind(Protocol):
    """What the project asks of a kind of machine."""

    @property
    def description(self) -> type[MachineDescription]:
        """What a machine file of this kind is validated as."""

    @property
    def hidden_locations(self) -> tuple[str, ...]:
        """Parts of pydantic's locations that no file has as keys."""

    @property
    def readers(self) -> Mapping[str, FileReader]:
        """Other formats of machine files, by the file's suffix."""

    @property
    def machines(self) -> Traversable | None:
        """A folder of machine files that come with a kind from outside."""

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Takes out of ``base`` what ``values``, which extend it, replace by an alternative."""


@lru_cache(maxsize=1)
def _outside() -> dict[str, metadata.EntryPoint]:
    points = metadata.entry_points(group=ENTRY_POINTS)
    return {point.name: point for point in points if point.name not in BUILT_IN}


def isa_names() -> tuple[str, ...]:
    """The known instruction sets, built-in ones first."""
    return (*BUILT_IN, *sorted(_outside()))


@lru_cache(maxsize=64)
def machine_kind(isa: str) -> MachineKind:
    """The kind called ``isa``; MachineError, with the known ones, for another name."""
    if isa in BUILT_IN:
        module, _, name = BUILT_IN[isa].partition(":")
        kind: MachineKind = getattr(importlib.import_module(module), name)
        return kind
    if isa in _outside():
        found: MachineKind = _outside()[isa].load()
        return found
    known = ", ".join(map(repr, isa_names()))
    raise MachineError(f"no kind of machine has the isa {isa!r}; there are {known}")


def file_readers() -> dict[str, FileReader]:
    """Other formats of machine files than TOML, of all kinds, by suffix."""
    return {
        suffix: reader
        for isa in isa_names()
        for suffix, reader in machine_kind(isa).readers.items()
    }


def machine_folders() -> tuple[Traversable, ...]:
    """Folders of machine files that come with kinds from outside."""
    folders = (machine_kind(isa).machines for isa in _outside())
    return tuple(folder for folder in folders if folder is not None)
