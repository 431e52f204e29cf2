"""The pipeline benchmark: real streams over two cores, one of them slowed down."""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from studies.harness.options import add_models, add_number
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.pipeline.errors import BenchError
from studies.pipeline.rows import CutRow, OrderRow, RetuneRow, Row, StreamRow
from studies.pipeline.tables import misses, print_rows, wrong
from tvm_npu.runtime.pipeline.place import ranges, usable_cores
from tvm_npu.runtime.pipeline.throttle import Throttle, may_steal

MODELS = ("resnet50", "squeezenet1.0")
SMALL = "lenet"
THROTTLE_PERIOD_S = 0.001
EPILOG = """\
One core is slowed by a process of real-time priority that takes it away for two thirds of every
millisecond, so that stages of a pipeline and threads of stock TVM are slowed alike. That needs
root (or CAP_SYS_NICE). Nothing else should run on the two cores. A goal that is missed is told by
the last lines; a frame that is lost, or a result that differs, makes the exit code 1.
"""


@dataclass(frozen=True)
class Streams:
    """All rows of one network."""

    stream: StreamRow
    retune: RetuneRow
    cuts: list[CutRow]


class PipelineStudy(Study[list[Row]]):
    name = "bench_pipeline"
    texts = Texts(
        "Two-stage pipelines on two cores of this machine, one of them slowed to a third:\n"
        "every contiguous cut, what tuning finds while frames flow, stock TVM with both cores on\n"
        "every layer; tuning again when the other core becomes the slow one; and a long stream\n"
        "of a small network, in order, with none lost.",
        EPILOG,
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_models(parser, MODELS, nargs="*")
        add_number(
            parser, "--frames", 10_000, f"length of the long stream of {SMALL}, 0: none", _count
        )
        add_number(
            parser, "--rounds", 4,
            "how often the fastest cuts, the tuned one and stock TVM take turns", _count,
        )  # fmt: skip
        parser.add_argument(
            "--cores", nargs=2, type=_count, metavar="ID",
            help="the two cores (default: the first two usable ones)",
        )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        cores = two_cores(options.cores)
        if options.models and not may_steal():
            raise BenchError(
                "a core can only be slowed down with real-time priority: run this as root"
            )
        if options.rounds < 1:
            raise BenchError("at least 1 round is needed")
        parts: list[Part[Any]] = []
        if options.frames:
            order = partial(_order, cores, options.frames)
            parts.append(Part((SMALL, f"{options.frames} frames"), OrderRow, order))
        for model in options.models:
            streams = partial(_streams, model, cores, options.rounds)
            parts.append(Part((model, "streams"), Streams, streams))
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Row]:
        rows: list[Row] = []
        for value in found.values():
            if isinstance(value, Streams):
                rows += [value.stream, value.retune, *value.cuts]
            else:
                rows.append(value)
        return rows

    def rows(self, result: list[Row]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Row]) -> None:
        print_rows(console, result)
        for miss in misses(result):
            console.print(f"goal missed: {miss}", soft_wrap=True)

    def check(self, result: list[Row]) -> None:
        broken = wrong(result)
        if broken:
            raise BenchError("; ".join(broken))


STUDY = PipelineStudy()


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def two_cores(chosen: Sequence[int] | None) -> tuple[int, int]:
    """Raises BenchError when there are not two different usable ones."""
    usable = sorted(usable_cores())
    cores = list(chosen or usable[:2])
    missing = sorted(set(cores) - set(usable))
    if missing:
        raise BenchError(f"core {missing[0]} cannot be used; usable: {ranges(usable)}")
    if len(set(cores)) < 2:
        raise BenchError(f"two different cores are needed; usable: {ranges(usable)}")
    return cores[0], cores[1]


@contextmanager
def _libraries() -> Iterator[Path]:
    """A folder for compiled stages, which are gigabytes: it goes whatever happens."""
    # TVM's advice to tune schedules is of no use here.
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tvm-npu-bench-") as folder:
        yield Path(folder)


def _order(cores: tuple[int, int], frames: int, bench: Bench) -> OrderRow:
    from studies.pipeline.network import make_network
    from studies.pipeline.order import measure_order

    with _libraries() as folder:
        network = make_network(SMALL, folder, with_stock=False)
        return measure_order(network, cores, frames)


def _streams(model: str, cores: tuple[int, int], rounds: int, bench: Bench) -> Streams:
    from studies.pipeline.network import make_network
    from studies.pipeline.streams import Effort, Stream

    with _libraries() as folder:
        bench.say("cutting and compiling")
        network = make_network(model, folder)
        with Throttle(cores, period_s=THROTTLE_PERIOD_S) as throttle:
            stream = Stream(network, cores, throttle, Effort(rounds=rounds), bench.say)
            rows = stream.measure()
        network.compiler.close()
    return Streams(*rows, stream.rows)
