"""``tvm-npu run-ir``: an execution plan in text on the simulator of a tile machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_npu.cli.arguments import add_limits_argument, non_negative
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_outputs, read_bytes, write_bytes
from tvm_npu.cli.ir_command import TEXT_MACHINE, texts_of
from tvm_npu.cli.tables import Column, make_table
from tvm_npu.cli.terminal import Terminal
from tvm_npu.sim.bounded_files import MOST_TEXT_BYTES
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.texts import cause

DESCRIPTION = """\
Reads an execution plan in e-PlaNNer's intermediate representation ('tvm-npu ir' writes such text;
by hand is fine, too), checks all of it, and runs it on the simulator of a tile machine with random
weights and input. The result is compared with the reference, bit by bit.
"""
EXAMPLES = """\
examples:
  tvm-npu run-ir conv1.ir
  tvm-npu run-ir conv1.ir --machine setup-b --seed 7
  tvm-npu run-ir conv1.ir --machine accelerator.json --program conv1.npu
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE")
    add_limits_argument(parser)
    parser.add_argument(
        "--machine", default=TEXT_MACHINE, metavar="FILE|NAME",
        help=f"tile machine, or a file that describes one (default: {TEXT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=tuple(ELEMENT_BYTES),
        help="default: the one whose widths are the text's",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=non_negative, default=0, metavar="N",
        help="seed of the random values (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--program", type=Path, metavar="FILE",
        help="write the program to FILE, for 'tvm-npu disasm'",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "program")
    machine = load_machine(args.machine)
    texts = texts_of(machine)
    import numpy as np

    from tvm_npu.codegen.errors import CodegenError
    from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
    from tvm_npu.codegen.reference import run_fixed
    from tvm_npu.runtime.session import Session

    try:
        text = read_bytes(args.file, "execution plan", MOST_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CliError(f"cannot read execution plan {str(args.file)!r}: {cause(error)}") from error
    with terminal.steps() as steps:
        steps.begin("reading the execution plan")
        try:
            read = texts.read(text)
            size = ELEMENT_BYTES[args.precision or texts.precision(read, machine)]
            texts.check_fits(read, machine)
            needed = texts.random_bytes(read, size)
            args.limits.check_memory("the plan's random layer", 0, needed)
            fixed = texts.random_layer(read, size, args.seed, args.file.stem)
            program = texts.program(read, fixed, machine)
        except CodegenError as error:
            raise CliError(f"{str(args.file)!r}: {error}") from error
        if args.program is not None:
            write_bytes(args.program, *program.file_parts())
        generator = np.random.default_rng(args.seed + 1)
        low, high = element_limits(fixed.element_bytes)
        inputs = {
            name: generator.integers(
                low, high + 1, (1, *fixed.shapes[name]), ELEMENT_TYPE[fixed.element_bytes]
            )
            for name in fixed.inputs
        }
        steps.begin("simulating: the first run ever compiles the simulator")
        session = Session(program, limits=args.limits)
        with terminal.simulating():
            (found,) = session.run_fixed([inputs[name] for name in fixed.inputs])
        steps.begin("computing the reference")
        expected = run_fixed(fixed, inputs)["y"]
    different = int(np.count_nonzero(found != expected))
    statistics = session.statistics
    assert statistics is not None
    streams = dict.fromkeys((*statistics.loaded_bytes, *statistics.stored_bytes))
    columns = [
        Column("stream", tuple(streams), name=True, total="all"),
        *(
            Column(
                heading, tuple(f"{counts.get(one, 0):,}" for one in streams),
                total=f"{sum(counts.values()):,}",
            )
            for heading, counts in (
                ("loaded\nbytes", statistics.loaded_bytes),
                ("stored\nbytes", statistics.stored_bytes),
            )
        ),
    ]  # fmt: skip
    terminal.out.print(make_table(columns, terminal.out.width))
    terminal.out.print(
        f"{statistics.cycles:,.0f} cycles ({statistics.time_us:,.1f} us at "
        f"{machine.frequency_mhz:g} MHz), {statistics.macs:,} MACs, "
        f"{100 * statistics.mac_utilization:.1f} % of the peak rate",
        soft_wrap=True,
    )
    if different:
        raise CliError(f"{different} of {expected.size} results differ from the reference")
    terminal.out.print(f"all {expected.size:,} results equal the reference", soft_wrap=True)
    return 0

