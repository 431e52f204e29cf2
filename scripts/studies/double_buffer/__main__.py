"""Double-buffer tiling on a simulated Zynq-7020, beside the paper's figures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.double_buffer.plots import plot
from studies.double_buffer.published import LAYERS
from studies.double_buffer.report import lines, tables
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import open_terminal

EPILOG = """\
Each convolution of FlowNetS's contracting part runs by itself with random values, checked bit for
bit: its DMA programs execute on a simulated PL-330 beside a core that convolves. "naive" stands for
the paper's tilings made by hand (see docs/planning.md for the rule).

exit codes: 0 done; 1 a file cannot be written or a value is wrong; 2 the command line is wrong
"""
RUNS_A_LAYER = 8


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce_double_buffer",
        description="Naive and optimal double-buffer tilings of FlowNetS on a Zynq-7020:\n"
        "transfer times, use of the on-chip memory, whole times with and without caches.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a row a layer")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw them ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--layers", nargs="+", choices=LAYERS, metavar="NAME", default=list(LAYERS),
        help=f"of: {', '.join(LAYERS)} (default: all)",
    )  # fmt: skip
    return parser


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    check_outputs([options.json], options.plot)
    from studies.double_buffer.layers import flownet_layers
    from studies.double_buffer.study import study_layer

    terminal = open_terminal()
    chosen = [pair for pair in flownet_layers() if pair[0] in options.layers]
    rows = []
    with terminal.steps(RUNS_A_LAYER * len(chosen)) as steps:
        for name, problem in chosen:

            def begin(run: str, layer: str = name) -> None:
                steps.begin(f"{layer}: {run}")

            rows.append(study_layer(name, problem, begin, steps.done))
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in rows])
    if options.plot is not None:
        write_bytes(options.plot, plot(rows, options.plot.suffix[1:].lower()))
    console = terminal.out
    for table in tables(rows, console.width):
        console.print(table)
        console.print()
    for line in lines(rows):
        console.print(line, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("reproduce_double_buffer", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
