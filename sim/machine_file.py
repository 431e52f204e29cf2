"""Machine files: TOML, validated, with units in the key names. Knows no kind of machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tvm_npu.sim import kinds
from tvm_npu.sim.bounded_files import read_text_bounded
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import KindError, MachineError
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import (
    MOST_FILE_BYTES,
    TextError,
    cause,
    cut,
    did_you_mean,
    lines_of_keys,
    parse_toml,
    shown,
)

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = [
    "load_machine",
    "machine_from_dict",
    "machine_from_toml",
    "machine_names",
    "machine_toml",
    "of_description",
]

Description = TypeVar("Description", bound=MachineDescription)
MOST_PROBLEMS = 20
"""That a message names."""
DEFAULT_ISA = "nmp"
"""Of a file that does not say; the kind then complains about the missing key."""


def _files_in(folder: Traversable) -> dict[str, Traversable]:
    """Machine files in a folder, by machine name."""
    ending = ".toml"
    named = {item.name[: -len(ending)]: item for item in folder.iterdir()
             if item.name.endswith(ending)}  # fmt: skip
    return dict(sorted(named.items()))


def _own_files() -> dict[str, Traversable]:
    """Machine files that come with this package."""
    return _files_in(resources.files("tvm_npu.sim") / "machines")


def _built_in_files() -> dict[str, Traversable]:
    """Machine files that come with this package and with installed kinds; one of this package
    keeps its name."""
    outside = [_files_in(folder) for folder in kinds.machine_folders()]
    found: dict[str, Traversable] = {}
    for files in (*outside, _own_files()):
        found.update(files)
    return dict(sorted(found.items()))


def machine_names(isa: str | None = None) -> tuple[str, ...]:
    """Names of the machines that come with the package and with installed kinds; only those of one
    kind, if ``isa`` says which. Of no file more is looked at than its kind."""
    files = _built_in_files()
    return tuple(name for name in files if isa is None or _isa(name, files) == isa)


def _isa(name: str, files: Mapping[str, Traversable]) -> object:
    """What the file of a machine, or those that it extends, say of its kind; None for a file that
    says nothing, or cannot be read."""
    seen: set[object] = set()
    while name in files and name not in seen:
        seen.add(name)
        try:
            values = parse_toml(files[name].read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if "isa" in values or "extends" not in values:
            return values.get("isa")
        name = str(values["extends"])
    return None


@lru_cache(maxsize=64)
def _built_in(name: str) -> MachineDescription:
    own = _own_files()
    file = own[name] if name in own else _built_in_files()[name]
    return machine_from_toml(file.read_text("utf-8"), origin=f"{name}.toml")


def _is_built_in(name: str) -> bool:
    """Kinds from outside are only looked for when this package has no machine ``name``."""
    return name in _own_files() or name in _built_in_files()


def _extended(values: dict[str, object], origin: str) -> dict[str, object]:
    """``values`` with all that they do not say taken from the built-in machine ``extends``, except
    its name and description."""
    base = values.get("extends")
    if base is None:
        return values
    if not isinstance(base, str) or not _is_built_in(base):
        known = ", ".join(machine_names())
        raise MachineError(
            f"machine file {origin}: extends: no machine that comes with the package (value: "
            f"{shown(base)}); there are {known}{did_you_mean(base, machine_names())}"
        )
    machine = _built_in(base)
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

    Raises MachineError for what is no name or path, an unknown name, an unreadable file, a missing
    or absurd key.
    """
    path = as_path(name_or_path, "a machine's name or path", MachineError)
    text = str(name_or_path)
    if _is_built_in(text):
        return _built_in(text)
    foreign = None if path.suffix == ".toml" else kinds.file_readers().get(path.suffix)
    if path.suffix != ".toml" and foreign is None and not os.path.exists(text):
        known = ", ".join(machine_names())
        problems = "".join(f"; {problem}" for problem in kinds.outside_problems())
        near = did_you_mean(text, machine_names())
        raise MachineError(
            f"unknown machine {text!r}: neither a file nor one of {known}{problems}{near}"
        )
    try:
        content = read_text_bounded(path, MOST_FILE_BYTES)
    except (OSError, ValueError) as error:  # not text, or no path
        raise MachineError(f"cannot read machine file {text!r}: {cause(error)}") from error
    if foreign is None:
        return machine_from_toml(content, text)
    read, base = foreign
    return machine_from_dict(read(content, text, _built_in(base).model_dump()), text)


def of_description(kind: type[Description], machine: MachineDescription) -> Description:
    """``machine``, for callers that take one kind only; MachineError for another kind."""
    if not isinstance(machine, kind):
        usable = kinds.usable_kinds().items()
        wanted = ", ".join(repr(isa) for isa, found in usable if found.description is kind)
        raise MachineError(
            f"machine {machine.name!r} is of isa {machine.isa!r}; this needs {wanted}"
        )
    return machine


def machine_from_toml(text: str, origin: str) -> MachineDescription:
    """A machine from the text of a TOML file called ``origin``."""
    try:
        values = parse_toml(text)
    except TextError as error:
        raise MachineError(f"machine file {origin}: {error}") from error
    return machine_from_dict(_extended(values, origin), origin, lines_of_keys(text))


def _line(parts: Sequence[str], lines: Mapping[tuple[str, ...], int]) -> str:
    """`` (line 12)`` of a key, or of the table that it stands in or should stand in."""
    for end in range(len(parts), 0, -1):
        if tuple(parts[:end]) in lines:
            return f" (line {lines[tuple(parts[:end])]})"
    return ""


def _keys_at(annotation: Any, path: Sequence[str]) -> list[str]:
    """Keys of the table at ``path`` of a description, whichever of its alternatives is meant."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        if not path:
            return list(fields)
        return _keys_at(fields[path[0]].annotation, path[1:]) if path[0] in fields else []
    return [key for one in get_args(annotation) for key in _keys_at(one, path)]


def machine_from_dict(
    values: dict[str, object],
    origin: str = "machine",
    lines: Mapping[tuple[str, ...], int] = MappingProxyType({}),
) -> MachineDescription:
    """Validates plain values (from TOML, or from a program file); ``lines`` say where keys
    stand."""
    isa = values.get("isa", DEFAULT_ISA)
    if not isinstance(isa, str) or isa not in (*kinds.BUILT_IN, *kinds.isa_names()):
        known = ", ".join(repr(name) for name in kinds.isa_names())
        raise KindError(
            f"machine file {origin}: isa: no such kind of machine (value: {shown(isa)}); "
            f"there are {known}{did_you_mean(isa, kinds.isa_names())}{_line(('isa',), lines)}"
        )
    try:
        kind = kinds.machine_kind(isa)
    except KindError as error:
        raise KindError(f"machine file {origin}: isa: {error}") from error
    try:
        return kind.description.model_validate(values)
    except ValidationError as error:
        problems = []
        for item in error.errors(include_url=False)[:MOST_PROBLEMS]:
            parts = [str(part) for part in item["loc"] if part not in kind.hidden_locations]
            key, line = cut(".".join(parts) or "file"), _line(parts, lines)
            if item["type"] == "value_error":  # of several keys; the text names them
                problems.append(f"{key}: {item['ctx']['error']}{line}")
                continue
            given = "" if item["type"] == "missing" else f" (value: {shown(item['input'])})"
            near = ""
            if item["type"] == "extra_forbidden":
                near = did_you_mean(parts[-1], _keys_at(kind.description, parts[:-1]))
            problems.append(f"{key}: {item['msg']}{given}{near}{line}")
        if error.error_count() > MOST_PROBLEMS:
            problems.append(f"and {error.error_count() - MOST_PROBLEMS} more")
        raise MachineError(f"machine file {origin}: " + "; ".join(problems)) from error


def machine_toml(values: Mapping[str, Any]) -> str:
    """The machine file that says ``values``; keys without a value are left out."""
    import tomlkit

    given = {key: value for key, value in values.items() if value is not None}
    tables = {key: value for key, value in given.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in given.items() if key not in tables}
    inner = {key: _without_none(value) for key, value in tables.items()}
    return tomlkit.dumps({**plain, **inner})


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }
