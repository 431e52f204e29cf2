"""``tvm-npu compare``: a model on stock TVM, onnxruntime and simulated NPUs, side by side."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import Any

from tvm_npu.cli.arguments import (
    Names,
    add_limits_argument,
    add_shape_argument,
    non_negative,
    positive,
)
from tvm_npu.cli.errors import CliError, UsageError
from tvm_npu.cli.files import check_outputs, write_csv, write_json, write_text
from tvm_npu.cli.image_arguments import (
    PREPARATION,
    add_image_arguments,
    calibration_of,
    images_of,
)
from tvm_npu.cli.only_with import only_with
from tvm_npu.cli.onnx_file import input_shapes, parse_shapes, read_onnx
from tvm_npu.cli.terminal import Terminal
from tvm_npu.sim.machine_parts import ELEMENT_BYTES

DESCRIPTION = """\
Runs an ONNX model on stock TVM on this CPU (untuned, and with --trials tuned by TVM's own tuner),
on onnxruntime where it is installed, and on simulated NPUs; each in a process of its own. Latency
of the NPU is simulated, everything else is measured. Answers are compared with onnxruntime's, or
else with stock TVM's, and with labels where there are any.

The log of tuning is kept: the same command goes on where it stopped, and a larger --trials adds to
what is there.
"""
EXAMPLES = """\
examples:
  tvm-npu compare resnet8.onnx
  tvm-npu compare resnet8.onnx --machine nmp-4x8 snowflake-1cc --images cifar.npz --json a.json
  tvm-npu compare lenet.onnx --trials 64 --tuning-log lenet.tuning --threads 1
  tvm-npu compare lenet.onnx --python .venv/bin/python .venv-relax/bin/python --csv lenet.csv
"""
IMAGES = 16
"""How many of many images are used by default: each is simulated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument(
        "--machine", nargs="+", default=["nmp-4x8"], metavar="FILE|NAME", dest="machines",
        help="built-in machines or machine files (default: nmp-4x8)",
    )  # fmt: skip
    parser.add_argument(
        "--precision", nargs="+", choices=tuple(ELEMENT_BYTES), default=[None],
        dest="precisions", help="default: the machine's own",
    )  # fmt: skip
    parser.add_argument(
        "--planner", nargs="+", choices=Names(_planner_names), default=["exact"], metavar="NAME",
        dest="planners", help="see 'tvm-npu planners' (default: exact)",
    )  # fmt: skip
    parser.add_argument(
        "--runner", nargs="+", choices=Names(_runner_names), metavar="NAME", dest="runners",
        help="of: stock, stock-tuned, onnxruntime, npu (default: all that are installed)",
    )  # fmt: skip
    parser.add_argument(
        "--plan-log", type=Path, metavar="FILE",
        help="what 'tvm-npu tune' wrote; for --planner learned and exact-tuned",
    )  # fmt: skip
    add_image_arguments(parser, required=False, default_limit=IMAGES)
    parser.add_argument(
        "--calibration", type=Path, metavar="DIR|NPZ",
        help="inputs from which number ranges are taken, prepared as images are (default: the "
        "images; else random input)",
    )  # fmt: skip
    add_limits_argument(parser)
    add_shape_argument(parser)
    parser.add_argument(
        "--trials", type=non_negative, default=0, metavar="N",
        help="measurements of stock TVM's tuner (default: 0, which leaves tuned TVM out)",
    )  # fmt: skip
    parser.add_argument(
        "--tuning-log", type=Path, metavar="DIR",
        help="where stock TVM's tuner keeps its log (default: MODEL.tuning in this folder)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=positive, metavar="N",
        help="of what runs on this CPU (default: all cores)",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=positive, default=10, metavar="N",
        help="measurements on this CPU, of which the median counts (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--python", nargs="+", default=[], metavar="PYTHON", dest="pythons",
        help="other interpreters, with another TVM, to run what needs TVM, too",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows as CSV")
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help="write a page that a browser opens without a network",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    _check_options(args)
    if args.trials and args.tuning_log is None:
        args.tuning_log = Path(f"{args.model.stem}.tuning")
    check_outputs(args, "json", "csv", "html")
    from tvm_npu.cli.compare_tables import print_comparison
    from tvm_npu.comparison.choices import choices
    from tvm_npu.comparison.compare import compared

    with terminal.steps() as steps:
        steps.begin("checking what is asked for")
        asked_for = choices(
            args.model, args.runners, args.machines, args.precisions, args.planners,
            plan_log=args.plan_log, trials=args.trials, tuning_log=args.tuning_log,
            pythons=args.pythons,
        )  # fmt: skip
        steps.begin("reading the model")
        shapes, samples, labels, calibration = _data(args, terminal)
        found = compared(
            asked_for, args.model, samples, labels, calibration=calibration, shapes=shapes,
            threads=args.threads, repeats=args.repeats, progress=steps.begin, limits=args.limits,
        )  # fmt: skip
    print_comparison(found, terminal.out)
    if args.json is not None:
        write_json(args.json, found.to_dict())
    if args.csv is not None:
        write_csv(args.csv, found.flat_rows())
    if args.html is not None:
        from tvm_npu.report.page.compared import make_comparison_page

        write_text(args.html, make_comparison_page(found))
    if all(row.error is not None for row in found.rows):
        raise CliError("no runner has run the model")
    return 0


def _check_options(args: argparse.Namespace) -> None:
    images = args.files is not None
    only_with(args, ["--labels"], "--images", images, "whose files it names")
    only_with(args, ["--layout", "--limit"], "--images", images, "which it is about")
    prepared = images or args.calibration is not None
    only_with(args, PREPARATION, "--images or --calibration", prepared, "which it prepares")
    only_with(args, ["--tuning-log"], "--trials", args.trials, "whose results it keeps")
    if args.trials and args.runners is not None:
        from tvm_npu.comparison.runners import runner_called

        if not any(runner_called(name).tunes for name in args.runners):
            raise UsageError(
                "argument --trials: only with a runner that tunes, as stock-tuned; --runner has "
                f"{', '.join(args.runners)}"
            )


def _data(
    args: argparse.Namespace, terminal: Terminal
) -> tuple[dict[str, tuple[int, ...]], Any, list[int] | None, Any]:
    """(shapes, samples, labels, calibration) that the options name."""
    from tvm_npu.comparison.inputs import onnx_inputs

    model = read_onnx(args.model)
    shapes, notes = input_shapes(model, parse_shapes(args.shape))
    for note in notes:
        terminal.note(note)
    inputs = onnx_inputs(model, shapes)
    samples, labels = None, None
    if args.files is not None:
        labelled = list(islice(images_of(args, inputs), args.limit or IMAGES))
        samples = [entry.sample for entry in labelled]
        if not samples:
            raise CliError(f"{str(args.files)!r} has no images for a batch; at least one is needed")
        if all(entry.labels is not None for entry in labelled):
            labels = [label for entry in labelled for label in entry.labels or ()]
    else:
        terminal.note("no --images: one random input; accuracy on real data is unknown")
    calibration = None if args.calibration is None else iter(calibration_of(args, inputs))
    return shapes, samples, labels, calibration


def _planner_names() -> tuple[str, ...]:
    from tvm_npu.codegen.plan import planner_names, tuned_planner_names

    return (*planner_names(), *tuned_planner_names())


def _runner_names() -> tuple[str, ...]:
    from tvm_npu.comparison.runners import runner_names

    return runner_names()
