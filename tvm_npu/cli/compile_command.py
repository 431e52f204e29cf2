"""``tvm-npu compile``: one program file for each NPU region of a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_apart, check_folder, write_bytes
from tvm_npu.cli.model_job import (
    PARTITION_STEPS,
    add_model_arguments,
    compiled,
    load_and_partition,
)
from tvm_npu.cli.shown import shown
from tvm_npu.cli.terminal import Terminal
from tvm_npu.sim.texts import cause

DESCRIPTION = """\
Imports an ONNX model into TVM and writes every NPU region as a program file, DIR/<region>.npu:
code, constants, memory map and debug map, for 'tvm-npu disasm' and tvm_npu.runtime.
"""
EXAMPLES = """\
examples:
  tvm-npu compile lenet.onnx -o programs/
  tvm-npu compile lenet.onnx -o programs/ --planner fixed-ws --calibration digits.npz
  tvm-npu disasm programs/tvmgen_default_npu_main_0.npu
"""
SUFFIX = ".npu"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR",
        help="folder for the program files; it is made if it does not exist",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    folder = args.output
    check_folder(folder)
    lines: list[str] = []
    with terminal.steps() as steps:
        job = load_and_partition(args, terminal, steps)
        steps.expect(PARTITION_STEPS + len(job.partitioned.symbols))
        for symbol, generated in compiled(job, steps):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CliError(f"cannot make folder {str(folder)!r}: {cause(error)}") from error
            path = folder / f"{symbol}{SUFFIX}"
            program = generated.program()
            parts = program.file_parts()
            check_apart(path, args, "output")
            write_bytes(path, *parts)
            predicted = sum(layer.predicted_cycles or 0.0 for layer in program.layers)
            lines += [
                str(path),
                f"  {len(program.layers):,} layers, {predicted:,.0f} cycles predicted; "
                f"{sum(map(len, parts)):,} bytes, of them {4 * len(program.code):,} code, "
                f"{len(program.constants):,} constants",
            ]
    for line in lines:
        terminal.out.print(shown(line), soft_wrap=True)
    return 0
