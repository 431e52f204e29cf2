"""Errors of the model builders: each one names the thing, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable


class ModelError(ValueError):
    """Base of everything that `tvm_npu.models` refuses."""


class UnknownModelError(ModelError):
    """A model name that no builder answers to."""

    def __init__(self, name: object, allowed: Iterable[str]) -> None:
        self.name = name
        self.allowed = tuple(allowed)
        super().__init__(f"unknown model {name!r}; known models: {', '.join(self.allowed)}")


class ModelArgumentError(ModelError):
    """An argument of a builder outside its allowed range."""

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument = argument
        self.value = value
        self.allowed = allowed
        super().__init__(f"{argument} is {value!r}; allowed: {allowed}")


class ModelShapeError(ModelError):
    """A model whose shapes are not static, so that nothing can be counted or scaled."""


class ModelDataError(ModelError):
    """A data file or model file that is absent or does not hold what it should."""
