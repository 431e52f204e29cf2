"""``tvm-npu verify``: where a model's programs first compute something else than the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import add_limits_argument, positive
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs, read_bytes, write_json
from tvm_npu.cli.model_job import ModelJob, add_model_arguments, load_and_partition
from tvm_npu.cli.shown import shown
from tvm_npu.cli.terminal import Terminal
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import MAGIC
from tvm_npu.sim.bounded_files import open_bounded

if TYPE_CHECKING:
    from tvm_npu.calibration import Sample

DESCRIPTION = """\
Compiles a model's NPU regions, runs them on the simulator and holds every tensor of every layer to
the reference, bit by bit, store by store. Says where a program first parts from it: layer, tile,
instruction, and both values. For machines, planners and emitters of one's own.

Input is --inputs, or else the calibration data, or else random. With --program a program file runs
in the place of what compiles now: one that 'tvm-npu compile' wrote with the same options, and that
somebody has changed since. The model is needed for the reference: a program does not say all that
its layers compute (strides, padding, activations, what reads what), and holds weights only as its
emitter laid them out.
"""
EXAMPLES = """\
examples:
  tvm-npu verify lenet.onnx --machine my-npu.toml
  tvm-npu verify resnet.onnx --planner my-planner --inputs image.npz --samples 3
  tvm-npu verify lenet.onnx --program programs/tvmgen_default_npu_main_0.npu --json found.json
exit codes: 0 everything is as the reference says; 1 something is not
"""
DIVERGES = 1
"""The exit code where something is not as the reference says."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_limits_argument(parser)
    parser.add_argument(
        "--inputs", type=Path, metavar="NPZ", help="the model's inputs: arrays by name, as float"
    )
    parser.add_argument(
        "--samples", type=positive, metavar="N",
        help="number of inferences that are held to the reference (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--program", type=Path, action="append", default=[], metavar="FILE.npu",
        help="run this program for the region whose name the file has; once for each region",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "json")
    _check_model(args.model)
    from tvm_npu.verification import verify_regions

    with terminal.steps() as steps:
        job = load_and_partition(args, terminal, steps, needs_values=False)
        programs = _programs(args.program, job.partitioned.symbols)
        steps.begin("running, store by store")
        with terminal.simulating():
            samples = list(islice(_samples(args, job), args.samples or 1))
            found = list(verify_regions(job.partitioned, samples, programs, args.limits))
    if len(samples) < (args.samples or 1):
        source = args.calibration if args.inputs is None else args.inputs
        terminal.note(
            f"--samples {args.samples}: {str(source)!r} holds {len(samples)}, all of which were run"
        )
    wrong = [one for one in found if one.divergence is not None]
    for one in wrong:
        assert one.divergence is not None
        terminal.out.print(f"region {shown(one.region)}:", soft_wrap=True)
        for line in one.divergence.lines():
            terminal.out.print(f"  {shown(line)}", soft_wrap=True, markup=False, highlight=False)
    if not wrong:
        layers = sum(one.layers for one in found)
        terminal.out.print(
            f"{args.model} on {job.options.machine.name}: all tensors of {layers} layers are what "
            "the reference computes"
        )
    if args.json is not None:
        write_json(args.json, {"regions": [one.to_dict() for one in found]})
    return DIVERGES if wrong else 0


def _check_model(path: Path) -> None:
    """CliError for a program in the place of the model; what cannot be read is told later."""
    try:
        with open_bounded(path) as file:
            begin = file.read(len(MAGIC))
    except OSError:
        return
    if begin == MAGIC:
        raise CliError(
            f"{str(path)!r} is a program, not a model: the reference is computed from the model, "
            "whose layers and weights a program does not hold. Give the model that it was compiled "
            f"from, and --program {str(path)!r}"
        )


def _programs(files: list[Path], symbols: tuple[str, ...]) -> dict[str, Program]:
    """By region, which a file is called after, unless there is one region only."""
    found: dict[str, Program] = {}
    used: dict[str, Path] = {}
    for path in files:
        symbol = symbols[0] if len(symbols) == 1 else path.stem
        if symbol not in symbols:
            raise CliError(f"{str(path)!r}: no region is called so; there are {', '.join(symbols)}")
        if symbol in used:
            raise CliError(
                f"{str(path)!r} and {str(used[symbol])!r} are both for region {symbol}, which runs "
                "one program: give one --program for it"
            )
        used[symbol] = path
        try:
            found[symbol] = Program.from_bytes(read_bytes(path, "program"))
        except ProgramError as error:
            raise CliError(f"{str(path)!r}: {error}") from error
    return found


def _samples(args: argparse.Namespace, job: ModelJob) -> Iterator[Sample]:
    from tvm_npu.calibration import samples_from, synthetic

    if args.inputs is not None:
        yield from samples_from(args.inputs, job.inputs)
    elif job.calibration is not None:
        yield from job.calibration
    else:
        yield from synthetic(job.inputs, job.options.seed, args.samples or 1)
