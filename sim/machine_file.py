"""Machine files: TOML, validated, with units in the key names. Knows no kind of machine."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from tvm_npu.sim import kinds
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import MachineError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "load_machine",
    "machine_from_dict",
    "machine_from_toml",
    "machine_names",
    "of_description",
    "tomllib",
]

Description = TypeVar("Description", bound=MachineDescription)
DEFAULT_ISA = "nmp"
"""Of a file that does not say; the kind then complains about the missing key."""


def _built_in_files() -> dict[str, Traversable]:
    """Machine files that come with this package and with installed kinds, by machine name."""
    folders = [resources.files("tvm_npu.sim") / "machines", *kinds.machine_folders()]
    files = [item for folder in folders for item in folder.iterdir()]
    named = {
        item.name[: -len(".toml")]: item for item in files if item.name.endswith(".toml")
    }
    return dict(sorted(named.items()))


def machine_names() -> tuple[str, ...]:
    """Names of the machines that come with the package and with installed kinds."""
    return tuple(_built_in_files())


@lru_cache(maxsize=64)
def _built_in(name: str) -> MachineDescription:
    return machine_from_toml(_built_in_files()[name].read_text("utf-8"), origin=f"{name}.toml")


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
    machine = _built_in(str(base))
    result = machine.model_dump(exclude={"name", "description"})
    kinds.machine_kind(machine.isa).drop_alternatives(result, values)
    for key, value in values.items():
        mine = result.get(key)
        both = isinstance(value, dict) and isinstance(mine, dict)
        result[key] = {**mine, **value} if both else value  # type: ignore[dict-item]
    del result["extends"]
    return result


def load_machine(name_or_path: str | Path) -> MachineDescription:
    """A machine of any kind: a built-in one by name, or a machine file by path. A file whose suffix
    a kind reads (``.json``: e-PlaNNer's description) is that kind's.

    Raises MachineError for an unknown name, an unreadable file, a missing or absurd key.
    """
    text = str(name_or_path)
    if text in machine_names():
        return _built_in(text)
    path = Path(name_or_path)
    foreign = kinds.file_readers().get(path.suffix)
    if path.suffix != ".toml" and foreign is None and not path.exists():
        known = ", ".join(machine_names())
        raise MachineError(f"unknown machine {text!r}: neither a file nor one of {known}")
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"cannot read machine file {text!r}: {error}") from error
    if foreign is None:
        return machine_from_toml(content, text)
    read, base = foreign
    return machine_from_dict(read(content, text, _built_in(base).model_dump()), text)


def of_description(kind: type[Description], machine: MachineDescription) -> Description:
    """``machine``, for callers that take one kind only; MachineError for another kind."""
    if not isinstance(machine, kind):
        wanted = ", ".join(
            repr(isa) for isa in kinds.isa_names() if kinds.machine_kind(isa).description is kind
        )
        raise MachineError(
            f"machine {machine.name!r} is of isa {machine.isa!r}; this needs {wanted}"
        )
    return machine


def machine_from_toml(text: str, origin: str) -> MachineDescription:
    """A machine from the text of a TOML file called ``origin``."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"machine file {origin}: not TOML: {error}") from error
    return machine_from_dict(_extended(values, origin), origin)


def machine_from_dict(values: dict[str, object], origin: str = "machine") -> MachineDescription:
    """Validates plain values (from TOML, or from a program file)."""
    isa = values.get("isa", DEFAULT_ISA)
    if not isinstance(isa, str) or isa not in kinds.isa_names():
        known = ", ".join(repr(name) for name in kinds.isa_names())
        raise MachineError(
            f"machine file {origin}: isa: no such kind of machine (value: {isa!r}); "
            f"there are {known}"
        )
    kind = kinds.machine_kind(isa)
    try:
        return kind.description.model_validate(values)
    except ValidationError as error:
        problems = []
        for item in error.errors():
            parts = [str(part) for part in item["loc"] if part not in kind.hidden_locations]
            key = ".".join(parts) or "file"
            if item["type"] == "value_error":  # of several keys; the text names them
                problems.append(f"{key}: {item['ctx']['error']}")
                continue
            given = "" if item["type"] == "missing" else f" (value: {item['input']!r})"
            problems.append(f"{key}: {item['msg']}{given}")
        raise MachineError(f"machine file {origin}: " + "; ".join(problems)) from error
