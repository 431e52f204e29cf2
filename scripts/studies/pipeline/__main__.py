"""The pipeline benchmark: real streams over two cores, one of them slowed down."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.pipeline.errors import BenchError
from studies.pipeline.rows import Row
from studies.pipeline.tables import misses, print_rows, wrong
from studies.tso.command import exit_code
from tvm_npu.cli.files import check_writable, write_json
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.models import names
from tvm_npu.runtime.pipeline.place import ranges, usable_cores
from tvm_npu.runtime.pipeline.throttle import Throttle, may_steal

MODELS = ("resnet50", "squeezenet1.0")
SMALL = "lenet"
THROTTLE_PERIOD_S = 0.001
TERMINATED = 143
EPILOG = """\
One core is slowed by a process of real-time priority that takes it away for two thirds of every
millisecond, so that stages of a pipeline and threads of stock TVM are slowed alike. That needs
root (or CAP_SYS_NICE). Nothing else should run on the two cores.

exit codes: 0 done, also when a goal is missed (the last lines say so); 1 a frame was lost or a
            result differs, or this machine cannot run it; 2 the command line is wrong
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_pipeline",
        description="Two-stage pipelines on two cores of this machine, one of them slowed to a "
        "third:\nevery contiguous cut, what tuning finds while frames flow, stock TVM with both "
        "cores on\nevery layer; tuning again when the other core becomes the slow one; and a long "
        "stream\nof a small network, in order, with none lost.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument(
        "--models", nargs="*", type=_model, metavar="NAME", default=list(MODELS),
        help=f"networks to stream (default: {' '.join(MODELS)}); none: only the long stream",
    )  # fmt: skip
    parser.add_argument(
        "--frames", type=_count, metavar="N", default=10_000,
        help=f"length of the long stream of {SMALL} (default: 10000; 0: none)",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=_count, metavar="N", default=4,
        help="how often the fastest cuts, the tuned one and stock TVM take turns (default: 4)",
    )  # fmt: skip
    parser.add_argument(
        "--cores", nargs=2, type=_count, metavar="ID",
        help="the two cores (default: the first two usable ones)",
    )  # fmt: skip
    return parser


def _model(name: str) -> str:
    if name not in names():
        raise argparse.ArgumentTypeError(f"unknown model {name!r}; known: {', '.join(names())}")
    return name


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


def run(options: argparse.Namespace) -> None:
    """Raises BenchError and CliError."""
    if options.json is not None:
        check_writable(options.json)
    cores = two_cores(options.cores)
    if options.models and not may_steal():
        raise BenchError("a core can only be slowed down with real-time priority: run this as root")
    if options.rounds < 1:
        raise BenchError("at least 1 round is needed")
    terminal = open_terminal()
    # TVM's advice to tune schedules is of no use here.
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tvm-npu-bench-") as folder:
        with terminal.steps() as steps:
            from studies.pipeline.network import make_network
            from studies.pipeline.order import measure_order
            from studies.pipeline.streams import Effort, Stream, steps_of

            effort = Effort(rounds=options.rounds)
            if options.frames:
                steps.begin(f"{SMALL}: {options.frames:,} frames")
                network = make_network(SMALL, Path(folder), with_stock=False)
                rows.append(measure_order(network, cores, options.frames))
            done = 0
            for name in dict.fromkeys(options.models):
                steps.begin(f"{name}: cutting and compiling")
                network = make_network(name, Path(folder))
                done += steps_of(network, effort)
                steps.expect(done)
                with Throttle(cores, period_s=THROTTLE_PERIOD_S) as throttle:
                    stream = Stream(network, cores, throttle, effort, steps)
                    rows += [*stream.measure(), *stream.rows]
                network.compiler.close()
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in rows])
    print_rows(terminal.out, rows)
    for miss in misses(rows):
        terminal.out.print(f"goal missed: {miss}", soft_wrap=True)
    broken = wrong(rows)
    if broken:
        raise BenchError("; ".join(broken))


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        # So that a terminated run removes its libraries, which are gigabytes.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    return exit_code("bench_pipeline", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
