"""Layers as flat columns of a tuning log, and back; columns checked against a model of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.tune.space import Columns

_AXES = ("rows", "columns")
_FLAGS = ("has_residual", "is_dense", "has_twin", "window_has_weights")
_SIDES = ("top", "left", "bottom", "right")
_OPTIONAL = {"table_bytes": None, "out_bytes": None, "has_twin": False}
"""Columns that most layers do not have, and what that means."""


def problem_columns(problem: ConvProblem) -> Columns:
    """Pairs become ``kernel_rows`` and ``kernel_columns``, a window ``window_...``."""
    return _flat(problem, "")


def problem_of(columns: Mapping[str, Any]) -> ConvProblem:
    """The problem of `problem_columns`; ValueError for columns that are none."""
    rest = dict(columns)
    own = {key: rest.pop(key) for key in columns if key.startswith("window_")}
    try:
        window = None
        if own:
            window = _gathered(Window, {key[len("window_") :]: own[key] for key in own}, {})
        optional = {name: columns.get(name, usual) for name, usual in _OPTIONAL.items()}
        problem = _gathered(ConvProblem, rest, {"window": window, **optional})
    except KeyError as error:
        raise ValueError(f"{error.args[0]} of the layer is missing") from None
    known = problem_columns(problem)
    for key, value in columns.items():
        if key not in known:
            raise ValueError(f"{key} is nothing that a layer has")
        if type(value) is not (bool if key in _FLAGS else int):
            raise ValueError(f"{key} of the layer is {value!r}")
    return problem


_T = TypeVar("_T", ConvProblem, Window)


def _gathered(kind: type[_T], columns: Mapping[str, Any], given: dict[str, Any]) -> _T:
    """KeyError for a missing column."""
    values = dict(given)
    for field in fields(kind):
        if field.name in given:
            continue
        parts: tuple[str, ...] = ()
        for names in (_AXES, _SIDES):
            if f"{field.name}_{names[0]}" in columns:
                parts = names
        if parts:
            values[field.name] = tuple(columns[f"{field.name}_{part}"] for part in parts)
        else:
            values[field.name] = columns[field.name]
    return kind(**values)


def _flat(value: ConvProblem | Window, prefix: str) -> Columns:
    columns: Columns = {}
    for field in fields(value):
        inner = getattr(value, field.name)
        name = prefix + field.name
        if isinstance(inner, tuple):
            parts = _AXES if len(inner) == len(_AXES) else _SIDES
            columns |= {f"{name}_{part}": x for part, x in zip(parts, inner, strict=True)}
        elif isinstance(inner, Window):
            columns |= _flat(inner, f"{name}_")
        elif inner != _OPTIONAL.get(name):
            columns[name] = inner
    return columns


def checked_columns(choices: type[BaseModel], columns: Mapping[str, Any]) -> dict[str, Any]:
    """``columns`` as a model of them has it; ValueError, with the first that is wrong."""
    try:
        found = choices.model_validate(dict(columns))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise ValueError(f"{name} is missing") from None
        raise ValueError(f"{name} is {first['input']!r}: {first['msg']}") from None
    return found.model_dump()
