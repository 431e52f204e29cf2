"""A small study for tests of the harness: numbers, squared; each part is noted in a file, and can
be made to wait, to fail or to be interrupted."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.drawing import render
from studies.harness.errors import StudyError
from studies.harness.options import add_number, add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column

NAMES = ("one", "two", "three", "four")


@dataclass(frozen=True)
class Square:
    """``pid`` tells which run computed it."""

    name: str
    value: float
    nested: dict[str, tuple[float | None, ...]]
    pid: int


class MadeUpStudy(Study[list[Square]]):
    name = "made_up"
    texts = Texts("Squares.", files={"json": "write the squares", "values": "values alone"})
    draws = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """``computed`` lists what was computed; a part waits while ``wait-NAME`` exists, fails
        where ``fail-NAME`` does, and is interrupted where ``interrupt-NAME`` does."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--names", "name", NAMES)
        add_number(parser, "--power", 2, "exponent", positive)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        return [
            Part((name, "square"), Square, partial(self._square, name, options.power))
            for name in options.names
        ]

    def _square(self, name: str, power: int, bench: Bench) -> Square:
        with (self.folder / "computed").open("a") as log:
            log.write(f"{name}\n")
        while (self.folder / f"wait-{name}").exists():
            time.sleep(0.01)
        if (self.folder / f"fail-{name}").exists():
            raise StudyError(f"{name} has no square")
        if (self.folder / f"interrupt-{name}").exists():
            raise KeyboardInterrupt
        bench.say("squaring")
        left = bench.scratch / "left"
        before = left.read_text() if left.exists() else ""
        left.write_text(before + name[0])
        value = (0.1 * len(name)) ** power
        nested = {before: (value / 3, None, float("inf"))}
        return Square(name, value, nested, os.getpid())

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Square]:
        return list(found.values())

    def rows(self, result: list[Square]) -> Mapping[str, Sequence[Any]]:
        plain = [{"name": one.name, "value": one.value, "pid": one.pid} for one in result]
        return {"json": plain, "values": [one.value for one in result]}

    def draw(self, result: list[Square], file_format: str) -> bytes:
        return render(lambda figure: figure.suptitle("squares"), (2, 2), file_format)

    def show(self, console: Console, result: list[Square]) -> None:
        columns = [
            Column("name", tuple(one.name for one in result), name=True),
            Column("value", tuple(f"{one.value:.6f}" for one in result)),
        ]
        print_sheets(console, [Sheet("Squares", columns)])

    def check(self, result: list[Square]) -> None:
        if (self.folder / "wrong").exists():
            raise StudyError("the squares are wrong")


if __name__ == "__main__":
    import sys

    from studies.harness.command import main

    sys.exit(main(MadeUpStudy(Path(sys.argv[1])), sys.argv[2:]))
