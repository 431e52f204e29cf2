"""The evaluation of the e-PlaNNer thesis, cell by cell, on the simulator."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from studies.eplanner.plots import plot
from studies.eplanner.published import MODELS, SETUPS
from studies.eplanner.study import PLANNERS, run_study
from studies.eplanner.tables import print_study
from studies.tso.command import check_outputs, exit_code
from studies.tso.drawing import FORMATS
from tvm_npu.cli.files import write_bytes, write_json
from tvm_npu.cli.terminal import open_terminal

EPILOG = """\
Every distinct layer is compiled under every plan, simulated with values and timing, and compared
with the reference bit for bit. The JSON file is a list of flat objects, one for each model, set-up
and planner: offchip_bytes, simulated_us, predicted_us, plan_s, space, space_kept and others.

exit codes: 0 done; 1 values differ or a file cannot be written; 2 the command line is wrong
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce_eplanner",
        description="The e-PlaNNer thesis, chapter 8: five networks on the set-ups A to D under "
        "e-PlaNNer, the planners that it compares with and our exact ones, simulated, beside the "
        "published figures. No option tunes anything.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE",
        help=f"draw them ({', '.join('.' + one for one in FORMATS)}); needs matplotlib",
    )  # fmt: skip
    for option, known in (("models", MODELS), ("setups", SETUPS), ("planners", PLANNERS)):
        parser.add_argument(
            f"--{option}", nargs="+", choices=known, metavar="NAME", default=list(known),
            help=f"of: {', '.join(known)} (default: all)",
        )  # fmt: skip
    return parser


def run(options: argparse.Namespace) -> None:
    """Raises ReproductionError and CliError."""
    check_outputs([options.json], options.plot)
    terminal = open_terminal()
    models = [name for name in MODELS if name in options.models]
    setups = [name for name in SETUPS if name in options.setups]
    planners = [name for name in PLANNERS if name in options.planners]
    with terminal.steps() as steps, terminal.simulating():
        study = run_study(models, setups, planners, steps)
    if options.json is not None:
        write_json(options.json, [asdict(row) for row in study.rows])
    if options.plot is not None:
        write_bytes(options.plot, plot(study.rows, options.plot.suffix[1:].lower()))
    print_study(terminal.out, study)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return exit_code("reproduce_eplanner", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
