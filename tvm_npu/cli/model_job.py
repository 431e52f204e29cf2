"""What `profile` and `compile` share: their options, and ONNX file -> partitioned model."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from tvm_npu.cli.arguments import add_shape_argument, non_negative, percentile
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.image_arguments import (
    PREPARATION,
    add_preparation_arguments,
    calibration_of,
    preparation_of,
    prepares,
)
from tvm_npu.cli.only_with import only_with
from tvm_npu.cli.onnx_file import import_file, parse_shapes
from tvm_npu.cli.terminal import Steps, Terminal
from tvm_npu.codegen.backend import Images
from tvm_npu.codegen.plan import planner_names, tuned_planner_names
from tvm_npu.errors import NothingOffloadedWarning, SyntheticCalibrationWarning
from tvm_npu.options import (
    DEFAULT_MACHINE,
    DEFAULT_MAX_LOSS,
    DEFAULT_PLANNER,
    NpuOptions,
    Offload,
    Quantization,
    make_options,
)
from tvm_npu.sim.machine_file import load_machine, machine_names
from tvm_npu.sim.machine_parts import ELEMENT_BYTES

if TYPE_CHECKING:
    from tvm_npu.calibration import InputSpec, Sample
    from tvm_npu.codegen.compile import Generated
    from tvm_npu.door.models import ImportedModel, PartitionedModel

PARTITION_STEPS = 2
"""Steps of progress in `load_and_partition`."""


FED_AS_THEY_ARE = (
    "images are fed as 0..255; for a model that takes other values, ranges and accuracy are wrong: "
    "give --preset, or --scale, --mean and --std, or .npy or .npz files"
)


@dataclass(frozen=True)
class ModelJob:
    """A partitioned model and what it was made with; ``calibration`` None: random input."""

    path: Path
    options: NpuOptions
    inputs: tuple[InputSpec, ...]
    calibration: Iterable[Sample] | None
    partitioned: PartitionedModel


def add_model_arguments(parser: argparse.ArgumentParser, shares_images: bool = True) -> None:
    """Without ``shares_images`` the command says itself what its images are."""
    add_question_arguments(parser)
    parser.add_argument(
        "--planner", choices=(*planner_names(), *tuned_planner_names()), default=DEFAULT_PLANNER,
        metavar="NAME", help=f"see 'tvm-npu planners' (default: {DEFAULT_PLANNER})",
    )  # fmt: skip
    parser.add_argument(
        "--tuning-log", type=Path, metavar="FILE",
        help=f"what 'tvm-npu tune' wrote; for --planner {' and '.join(tuned_planner_names())}",
    )  # fmt: skip
    if shares_images:
        add_preparation_arguments(parser)
        parser.add_argument(
            "--images", choices=get_args(Images), default="together",
            help="what the clusters of a device do with a batch: share each image, or compute one "
            "each (default: together)",
        )  # fmt: skip
    parser.add_argument(
        "--seed", type=non_negative, default=0, metavar="N",
        help="seed of the random input and of --random-weights (default: 0)",
    )  # fmt: skip


def add_question_arguments(parser: argparse.ArgumentParser) -> None:
    """What decides which layers planners are asked about: the model, the machine, and with layers
    of two precisions what calibration finds."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="ONNX or .tflite file")
    parser.add_argument(
        "--machine", default=DEFAULT_MACHINE, metavar="FILE|NAME",
        help=f"built-in machine or machine file (default: {DEFAULT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--offload", choices=get_args(Offload), default="paying",
        help="regions without weights and windows: those that save the CPU more than they cost, or "
        "all (default: paying)",
    )  # fmt: skip
    add_shape_argument(parser)
    parser.add_argument(
        "--random-weights", action="store_true",
        help="weights that the model lacks are random: initializers without data, and inputs that "
        "layers take as weights",
    )  # fmt: skip
    _add_quantization_arguments(parser)


def _add_quantization_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--precision", choices=(*ELEMENT_BYTES, "auto"), help="default: the machine's own"
    )
    parser.add_argument(
        "--int16-layers", nargs="+", metavar="NAME",
        help="layers, or nodes of the model, that compute in int16 where the others do in int8",
    )  # fmt: skip
    parser.add_argument(
        "--max-loss", type=float, metavar="X",
        help="with --precision auto: the noise that outputs of regions may have, as a share of "
        f"their signal's power over the calibration data (default: {DEFAULT_MAX_LOSS:g}, which is "
        "20 dB); layers compute in int16 until it is reached",
    )  # fmt: skip
    parser.add_argument(
        "--calibration", type=Path, metavar="DIR|NPZ",
        help="inputs from which number ranges are taken: a folder of .npy, .npz, .png and .jpg "
        "files, or one such file; .npz files hold arrays by input name, images come as 0..255 "
        "float (--preset, --scale, --mean and --std make other values of all). Without it: random "
        "input",
    )  # fmt: skip
    parser.add_argument(
        "--percentile", type=percentile, metavar="P",
        help="share of calibration values that ranges keep, above 0 up to 100 (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--quantization", choices=get_args(Quantization), default="plain",
        help="what calibration may change in int8 layers for accuracy (default: plain, nothing)",
    )  # fmt: skip


def load_and_partition(
    args: argparse.Namespace,
    terminal: Terminal,
    steps: Steps,
    needs_values: bool = True,
    calibrate_on: Callable[[Sequence[InputSpec]], Iterable[Sample]] | None = None,
) -> ModelJob:
    """Without ``needs_values`` nobody looks at numbers, so that random ones are as good as any.
    ``calibrate_on`` gives samples for the model's inputs where the user gives no calibration data.
    Raises CliError when no operator runs on the NPU, and the typed errors of the door."""
    shapes = parse_shapes(args.shape)
    options = make_options(
        args.machine,
        precision=args.precision,
        planner=args.planner,
        percentile=args.percentile,
        seed=args.seed,
        tuning_log=args.tuning_log,
        images=args.images,
        offload=args.offload,
        quantization=args.quantization,
        int16_layers=args.int16_layers,
        max_loss=args.max_loss,
    )
    machine = options.machine
    if machine.name in machine_names() and machine != load_machine(machine.name):
        terminal.note(
            f"machine file {args.machine!r} has the name of the built-in machine {machine.name!r}, "
            "but differs from it"
        )
    from tvm_npu.calibration_files import IMAGES, calibration_files

    files = None if args.calibration is None else calibration_files(args.calibration)
    if prepares(args):
        preparation_of(args)  # its errors before the work
    if calibrate_on is None:
        only_with(args, PREPARATION, "--calibration", files is not None, "which it prepares")
    weights_seed = args.seed if args.random_weights else None
    imported = import_file(args.model, shapes, terminal, steps, weights_seed)
    steps.done()
    calibration = None if files is None else calibration_of(args, imported.inputs)
    samples = calibration
    if calibration is None and calibrate_on is not None:
        samples = calibrate_on(imported.inputs)
    elif calibration is None and needs_values:
        terminal.note(
            f"no --calibration: number ranges come from random input (standard normal, seed "
            f"{options.seed}); accuracy on real data is unknown"
        )
    elif any(path.suffix.lower() in IMAGES for path in files or ()) and not prepares(args):
        terminal.note(FED_AS_THEY_ARE)
    partitioned = _partitioned(args, imported, options, samples, terminal, steps)
    return ModelJob(args.model, options, imported.inputs, calibration, partitioned)


def _partitioned(
    args: argparse.Namespace,
    imported: ImportedModel,
    options: NpuOptions,
    samples: Iterable[Sample] | None,
    terminal: Terminal,
    steps: Steps,
) -> PartitionedModel:
    """Raises CliError when no operator runs on the NPU, having printed why."""
    steps.begin("partitioning and calibrating")
    with warnings.catch_warnings():
        for said_here in (SyntheticCalibrationWarning, NothingOffloadedWarning):
            warnings.simplefilter("ignore", said_here)
        partitioned = imported.partition(options, samples)
    steps.done()
    report = partitioned.report
    if not report.regions:
        if report.refusals:
            from tvm_npu.cli.profile_tables import print_refusals

            print_refusals(report.refusals, terminal.out)
        raise CliError(
            f"no operator of {str(args.model)!r} runs on the NPU (operators left on the CPU: "
            f"{len(report.refusals)})"
        )
    return partitioned


def calibration_text(args: argparse.Namespace) -> str | None:
    """Where ranges come from, for reports; None: random input."""
    if args.calibration is None or not prepares(args):
        return None if args.calibration is None else str(args.calibration)
    named = f"{args.preset}: " if args.preset else ""
    return f"{args.calibration} as {named}{preparation_of(args)}"


def compiled(job: ModelJob, steps: Steps) -> Iterator[tuple[str, Generated]]:
    """(symbol, what becomes its program) of every region, in execution order; one step each."""
    symbols = job.partitioned.symbols
    for number, symbol in enumerate(symbols, 1):
        steps.begin(f"planning and compiling region {number} of {len(symbols)}")
        yield symbol, job.partitioned.region(symbol).generated()
        steps.done()
