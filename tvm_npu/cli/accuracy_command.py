"""``tvm-npu accuracy``: how often a model on the NPU is right, and which layer is to blame."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import add_limits_argument, non_negative
from tvm_npu.cli.engine_arguments import add_engine_arguments, workers_beside
from tvm_npu.cli.files import check_outputs, write_json
from tvm_npu.cli.image_arguments import add_image_arguments, images_of, preparation_of, prepares
from tvm_npu.cli.model_job import add_model_arguments, load_and_partition
from tvm_npu.cli.tables import Column, make_table
from tvm_npu.cli.terminal import Terminal

if TYPE_CHECKING:
    from tvm_npu.accuracy import Accuracy, RegionErrors
    from tvm_npu.calibration import InputSpec, Sample

DESCRIPTION = """\
Runs an ONNX model on labelled images as the NPU computes it, beside float: top-1, top-5, and the
signal-to-noise ratio of the output. Then each layer's own error (only that layer quantized) and the
accumulated one, worst first. Regions run by the reference, which the simulator equals to the bit;
it runs the first images and is compared. A quantized model (ONNX or TensorFlow Lite) also runs
with its own rounding alone, and float means that nothing is rounded on the NPU.

Images are a folder of .png, .npy and .npz files or one such file; an .npz file may hold `images`
and `labels`. Without --calibration ranges come from the first images; its files are prepared as
images are.
"""
EXAMPLES = """\
examples:
  tvm-npu accuracy mnist.onnx --images digits.npz --precision int8
  tvm-npu accuracy resnet20.onnx --images cifar.npz --scale 0.00392157 \\
      --mean 0.485 0.456 0.406 --std 0.229 0.224 0.225 --machine nmp-4x8-int8 \\
      --quantization bias-corrected --json resnet20.json
  tvm-npu accuracy resnet50.onnx --images photos/ --labels labels.csv --preset imagenet --fit crop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, shares_images=False)
    parser.set_defaults(images="together")
    add_image_arguments(parser, required=True)
    parser.add_argument(
        "--layer-samples", type=non_negative, default=8, metavar="N",
        help="samples over which layers' errors are taken (default: 8; 0: no layers)",
    )  # fmt: skip
    parser.add_argument(
        "--simulated", type=non_negative, default=1, metavar="N",
        help="samples that the simulator runs too and must agree on (default: 1)",
    )  # fmt: skip
    add_limits_argument(parser)
    add_engine_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    from tvm_npu.accuracy import LOW_SQNR_DB, check_can_be_sent, measure
    from tvm_npu.calibration import CALIBRATION_IMAGES, images_of_run

    taken = 0

    def first_images(inputs: Sequence[InputSpec]) -> Iterator[Sample]:
        nonlocal taken
        each, taken = images_of_run(inputs), 0
        for sample in islice(images_of(args, inputs).samples(), CALIBRATION_IMAGES):
            taken += each
            yield sample

    with terminal.steps() as steps:
        job = load_and_partition(args, terminal, steps, calibrate_on=first_images)
        if args.calibration is None and not job.partitioned.is_quantized:
            first = "image" if taken == 1 else f"{taken} images"
            terminal.note(f"no --calibration: ranges come from the first {first}")
        steps.begin("running images")
        with workers_beside(
            args, "accuracy with workers", lambda: check_can_be_sent(job.partitioned)
        ) as engine:
            found = measure(
                job.partitioned, islice(images_of(args, job.inputs), args.limit),
                layer_samples=args.layer_samples, simulated=args.simulated,
                progress=lambda count: steps.begin(f"{count} images"), engine=engine,
                limits=args.limits,
            )  # fmt: skip
    options = job.options
    prepared = f" as {preparation_of(args)}" if prepares(args) else ""
    terminal.out.print(
        f"{args.model} on {options.machine.name} ({options.precision}, {options.quantization}): "
        f"{found.images} images{prepared}"
    )
    for line in _summary(found):
        terminal.out.print(line)
    for region in found.regions:
        terminal.out.print()
        _print_layers(region, terminal)
    if found.sqnr_db < LOW_SQNR_DB:
        terminal.note(
            f"output SQNR {found.sqnr_db:.1f} dB is below {LOW_SQNR_DB:.0f} dB: answers have "
            "little to do with those of float; see the layers' advice, or take --precision int16"
        )
    if args.json is not None:
        values = found.to_dict()
        job_values = {
            "model": str(args.model), "machine": options.machine.name,
            "precision": options.precision, "quantization": options.quantization,
        }  # fmt: skip
        write_json(args.json, {**values, **job_values})
    return 0


def _summary(found: Accuracy) -> list[str]:
    lines = []
    if found.labelled:
        for name, ours, floats in (
            ("top-1", found.top1_npu, found.top1_float),
            ("top-5", found.top5_npu, found.top5_float),
        ):
            share, of_float = ours / found.labelled, floats / found.labelled
            lines.append(
                f"{name}: {share:.3f} ({ours} of {found.labelled}), float {of_float:.3f} ({floats})"
            )
    lines.append(f"same class as float: {found.agreement} of {found.images}")
    lines.append(f"output SQNR: {found.sqnr_db:.1f} dB")
    if found.source is not None:
        source = found.source
        lines.append(
            f"beside the model's own rounding: {100 * source.within_one_step:.3f} % of outputs "
            f"within one step, same class for {source.agreement} of {found.images}"
        )
    if found.cycles is not None:
        lines.append(f"cycles of one inference: {found.cycles:,.0f} (simulator agrees to the bit)")
    return lines


def _print_layers(region: RegionErrors, terminal: Terminal) -> None:
    layers = region.layers
    columns = [
        Column("layer", tuple(one.layer for one in layers), name=True),
        Column("kind", tuple(one.kind for one in layers), key=True),
        Column("own\ndB", tuple(f"{one.own_db:.1f}" for one in layers)),
        Column("accumulated\ndB", tuple(f"{one.accumulated_db:.1f}" for one in layers)),
        Column("low", tuple(f"{one.low:.3g}" for one in layers)),
        Column("high", tuple(f"{one.high:.3g}" for one in layers)),
        Column("clipped\n%", tuple(f"{100 * one.clipped_share:.2f}" for one in layers)),
        Column("what would help", tuple(one.advice for one in layers), prose=True),
    ]
    terminal.out.print(make_table(columns, terminal.out.width, f"layers of {region.region}"))
