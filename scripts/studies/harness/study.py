"""What a study is: options, parts of work, and what is made of their values."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

Key = tuple[str, ...]
Value = TypeVar("Value")
Result = TypeVar("Result")


class Bench:
    """What the computation of a part may use."""

    def __init__(
        self, found: Mapping[Key, Any], scratch: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.found = found
        """Values of the parts before."""
        self.scratch = scratch
        """A folder for files that later parts read. It is kept as long as the values are."""
        self.say = say
        """Tells a terminal what is going on inside of the part."""


@dataclass(frozen=True)
class Part(Generic[Value]):
    """A part of a study that is computed as a whole, or not at all.

    ``key`` is unique within a run; with the study's options it determines the value. ``kind`` is
    the type of the value, which pydantic can write as JSON and read again.
    """

    key: Key
    kind: Any
    compute: Callable[[Bench], Value]

    @property
    def label(self) -> str:
        return ", ".join(self.key)


@dataclass(frozen=True)
class Texts:
    """What ``--help`` says. ``files`` names the options for JSON files, and what they write."""

    description: str
    epilog: str = ""
    files: Mapping[str, str] = field(default_factory=lambda: {"json": "write the rows as JSON"})


class Study(ABC, Generic[Result]):
    """A benchmark or reproduction; its folder's `study.py` holds one as ``STUDY``.

    The harness calls `add_options`, `parts`, then computes the parts in their order, and calls
    `collect`, `rows` and `draw` (for output files), `show` and `check`.
    """

    name: str
    """The launcher's."""
    texts: Texts
    draws: bool = False
    """Whether there is a drawing, and so an option ``--plot``."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027
        """The study's own options; output files have theirs already."""

    @abstractmethod
    def parts(self, options: argparse.Namespace) -> Sequence[Part[Any]]:
        """All parts. Raises UsageError and StudyError for options that contradict each other or
        this machine; does no long work."""

    @abstractmethod
    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Result:
        """The values of all parts, in the order of the parts, as what follows needs them."""

    @abstractmethod
    def rows(self, result: Result) -> Mapping[str, Sequence[Any]]:
        """For each of ``texts.files`` asked for, a list of dataclasses or dictionaries."""

    @abstractmethod
    def show(self, console: Console, result: Result) -> None:
        """Tables and sentences for people."""

    def draw(self, result: Result, file_format: str) -> bytes:
        """The drawing as a file of one of `drawing.FORMATS`."""
        raise NotImplementedError(f"{self.name} draws nothing")

    def check(self, result: Result) -> None:  # noqa: B027
        """Raises StudyError when the values are wrong, after all have been written and shown."""
