"""``tvm-npu sweep``: models on many machines, and which machines are worth building."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import add_limits_argument, non_negative
from tvm_npu.cli.engine_arguments import add_engine_arguments, engine_of
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_folder, check_outputs, write_csv, write_json, write_text
from tvm_npu.cli.only_with import only_with
from tvm_npu.cli.terminal import Terminal

if TYPE_CHECKING:
    from tvm_npu.cli.tables import Column
    from tvm_npu.sweep import SweepResult
    from tvm_npu.sweep.judged import Judged
    from tvm_npu.sweep.spec import SweepSpec

DESCRIPTION = """\
Runs models on machines: files, or all variations of a base machine's keys that constraints allow.
Shows the designs that no other is better than in all objectives (the Pareto front), and by how much
each key moves each objective.

Results are kept in a folder as they come. The same command goes on where an interrupted one
stopped, and sweeps that share a folder share results. What comes out does not depend on the number
of workers. A point that cannot be planned, or is beyond --limits, is a row with its reason.
"""
EXAMPLES = """\
a specification:
  models = ["lenet", "mine.onnx"]           # names of tvm_npu.models, or files
  fidelity = ["predicted", "checked"]       # predicted, simulated, checked: each on the best of
                                            # the one before
  [machine]
  base = "nmp-4x8"
  constraints = ["memories.mb0_bytes == memories.mb1_bytes"]
  [machine.keys]
  "cores.tles" = [1, 2, 4]
  "memories.mb0_bytes" = {from = 2048, to = 16384, factor = 2}
  "memories.mb1_bytes" = {from = 2048, to = 16384, factor = 2}
  [outcome.macs_a_cycle]                    # what you know: area, energy; give its source
  formula = "cores.tles * cores.tlts_per_tle * mac.datapath_bits / 16"
  source = "the machine file"
  [accuracy."mine.onnx"]                    # images of a model: as of 'tvm-npu accuracy'
  images = "photos/"
  labels = "labels.csv"
  preset = "imagenet"
  [search]
  method = "grid"                           # grid, random, nsga2
  objectives = ["cycles", "macs_a_cycle"]   # cycles, time_us, dram_bytes, frames_per_s; top1, top5,
                                            # agreement, sqnr_db of models with images; formulas
  require = ["macs_a_cycle <= 256"]         # what designs of the front must have

examples:
  tvm-npu sweep study.toml
  tvm-npu sweep study.toml --workers 8 --csv points.csv
  tvm-npu sweep study.toml --scheduler tcp://10.0.0.5:8786 --store /shared/study
  tvm-npu sweep study.toml --budget area_mm2=5 --html study.html --profiles 3
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec", type=Path, metavar="SPEC.toml",
        help="the specification: models, machines and what is sought, see below",
    )  # fmt: skip
    parser.add_argument(
        "--store", type=Path, metavar="DIR",
        help="folder of results (default: SPEC.sweep beside the specification)",
    )  # fmt: skip
    add_limits_argument(parser)
    add_engine_arguments(parser)
    parser.add_argument(
        "--budget", action="append", default=[], metavar="NAME=MOST", type=_budget,
        help="show the designs of the front that take at most so much of an objective (of frames a "
        "second and accuracies: have at least)",
    )  # fmt: skip
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all points as CSV")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all points as JSON")
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help="write a page with the front, parallel axes and sensitivities, which a browser opens "
        "without a network",
    )  # fmt: skip
    parser.add_argument(
        "--profiles", type=non_negative, default=0, metavar="N",
        help="for --html: simulate the front's first N designs once more and write their profiles, "
        "which the page's points lead to, into a folder beside it (default: 0)",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.profiles:
        only_with(args, ["--profiles"], "--html", args.html, "whose page leads to them")
    from tvm_npu.sweep import read_spec, run_sweep

    check_outputs(args, "csv", "json", "html")
    if args.profiles:
        _check_profiles(args.html)
    spec = read_spec(args.spec)
    for name, _ in args.budget:
        if name not in spec.search.objectives:
            known = ", ".join(spec.search.objectives)
            raise CliError(f"--budget {name}: no objective of the sweep; it has {known}")
    store = args.store or args.spec.with_suffix(".sweep")
    with terminal.steps() as steps:
        steps.begin("preparing models")

        def progress(fidelity: str, done: int, of: int) -> None:
            steps.begin(f"{fidelity}: {done:,} of {of:,}")
            steps.reach(done, of)

        result = run_sweep(spec, store, engine_of(args, "sweeps"), progress, args.limits)
    _print(result, args, terminal)
    terminal.out.print(
        f"{len(result.rows):,} points, {result.evaluated:,} of them new, in {store}",
        soft_wrap=True,
    )
    if args.json is not None:
        write_json(args.json, list(result.rows))
    if args.csv is not None:
        write_csv(args.csv, result.flat_rows())
    if args.html is not None:
        _write_page(result, args, terminal)
    return 0


def _write_page(result: SweepResult, args: argparse.Namespace, terminal: Terminal) -> None:
    from tvm_npu.report.page.swept import make_sweep_page
    from tvm_npu.sweep.profiles import write_profiles

    folder = _profiles(args.html)
    with terminal.steps() as steps:
        profiles = write_profiles(result, args.profiles, folder, steps.begin, args.limits)
    write_text(args.html, make_sweep_page(result, profiles))


def _profiles(page: Path) -> Path:
    """The folder beside ``page`` with the profiles that it leads to."""
    return page.with_suffix(".profiles")


def _check_profiles(page: Path) -> None:
    """Before the work. Raises CliError where there can be no such folder."""
    if _profiles(page) == page:
        raise CliError(
            f"--profiles: {str(page)!r} would be the folder of the profiles, too; give --html "
            "another name"
        )
    check_folder(_profiles(page))


def _budget(text: str) -> tuple[str, float]:
    name, _, most = text.partition("=")
    try:
        number = float(most)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MOST, for example area_mm2=5")
    return name, number


def _print(result: SweepResult, args: argparse.Namespace, terminal: Terminal) -> None:
    from tvm_npu.cli.tables import Column, print_tables
    from tvm_npu.report.page.numbers import factor
    from tvm_npu.sweep.outcome import is_within, means_said

    objectives = result.spec.search.objectives
    best = [
        one
        for one in result.front_designs()
        if all(is_within(name, one.score(objectives, name), most) for name, most in args.budget)
    ]
    if best:
        terminal.out.print("The front: no design is better in all objectives.")
        print_tables(_front_columns(best, result.spec), terminal.out)
    else:
        terminal.out.print("No design has outcomes for all models" + (
            " within the budget and the requirements."
            if args.budget or result.spec.search.require else "."))  # fmt: skip
    if len(result.spec.models) > 1:
        terminal.out.print(means_said(objectives))
    if result.sensitivity:
        terminal.out.print("\nBy how much each key moves each objective (largest / smallest mean):")
        keys = list(result.sensitivity)
        columns = [Column("key", tuple(keys), key=True)]
        for at, name in enumerate(objectives):
            cells = tuple(factor(result.sensitivity[key][at]) for key in keys)
            columns.append(Column(name, cells))
        print_tables(columns, terminal.out)
    faults = [row for row in result.rows if row["fault"] is not None]
    if faults:
        terminal.note(f"{len(faults)} points have no outcome; first: {faults[0]['machine']} on "
                      f"{faults[0]['model']}: {faults[0]['fault']}")  # fmt: skip


def _front_columns(best: list[Judged], spec: SweepSpec) -> list[Column]:
    from tvm_npu.cli.tables import Column

    columns = []
    for key in dict(best[0].design.changes):
        cells = tuple(str(dict(one.design.changes).get(key, "")) for one in best)
        columns.append(Column(key.replace(".", ".\n"), cells, key=True))
    if not columns or len({one.design.name for one in best}) > 1 and not best[0].design.changes:
        columns = [Column("machine", tuple(one.design.name for one in best), key=True)]
    if len(spec.planners) > 1:
        columns.append(Column("planner", tuple(one.design.planner for one in best), key=True))
    if len(spec.precisions) > 1:
        cells = tuple(one.design.precision or "" for one in best)
        columns.append(Column("precision", cells, key=True))
    if len(spec.batches) > 1:
        columns.append(Column("batch", tuple(str(one.design.batch) for one in best), key=True))
    for at, name in enumerate(spec.search.objectives):
        columns.append(Column(name, tuple(f"{one.scores[at]:,.6g}" for one in best)))
    return columns
