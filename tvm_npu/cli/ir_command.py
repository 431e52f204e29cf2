"""``tvm-npu ir``: the execution plan of one convolution as text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_writable, write_bytes
from tvm_npu.cli.model_job import ModelJob, add_model_arguments, load_and_partition
from tvm_npu.cli.terminal import Terminal
from tvm_npu.errors import TargetError
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import TileMachine

if TYPE_CHECKING:
    from tvm_npu.codegen.graph import FixedGraph
    from tvm_npu.codegen.ops import FixedConv

TEXT_MACHINE = "setup-a"

SUMMARY = "write the execution plan of a convolution as text"
DESCRIPTION = """\
Plans one convolution or fully connected layer of a model and writes the plan in e-PlaNNer's
intermediate representation: sections [info], [var] and [text], with the tiles, where they lie, and
LOAD, CONV, FINISH and STORE commands in the order in which they are executed. 'tvm-npu run-ir' runs
such a text.

The machine is a tile machine; for an NMP, its plan is written for the tile machine --for, one
core's tiles after another's. Without --layer: the names of the layers that have a plan.
"""
EXAMPLES = """\
examples:
  tvm-npu ir lenet.onnx --machine setup-a
  tvm-npu ir lenet.onnx --machine setup-a --layer conv1 --out conv1.ir
  tvm-npu ir lenet.onnx --machine nmp-4x8 --for setup-b --layer conv1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.set_defaults(machine=TEXT_MACHINE)
    parser.add_argument("--layer", metavar="NAME", help="a layer, as 'tvm-npu profile' names it")
    parser.add_argument(
        "--for", dest="text_machine", default=TEXT_MACHINE, metavar="FILE|NAME",
        help=f"with an NMP: the tile machine of the text (default: {TEXT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the text to FILE (default: print it)"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.out is not None:
        check_writable(args.out)
    target = tile_machine_named(args.text_machine)
    with terminal.steps() as steps:
        job = load_and_partition(args, terminal, steps)
        found = _convolutions(job)
    if args.layer is None:
        for layer, fixed in found:
            terminal.out.print(f"{layer.name}  {_size(layer, fixed)}", soft_wrap=True)
        return 0
    chosen = [pair for pair in found if pair[0].name == args.layer]
    if not chosen:
        names = ", ".join(layer.name for layer, _ in found)
        raise CliError(f"no convolution {args.layer!r}; there are {names or 'none'}")
    text = _text(*chosen[0], job, target)
    if args.out is None:
        terminal.out.file.write(text)
    else:
        write_bytes(args.out, text.encode())
    return 0


def _convolutions(job: ModelJob) -> list[tuple[FixedConv, FixedGraph]]:
    from tvm_npu.codegen.ops import FixedConv

    found = []
    for symbol in job.partitioned.symbols:
        fixed = job.partitioned.fixed_graph(symbol)
        found += [(layer, fixed) for layer in fixed.layers if isinstance(layer, FixedConv)]
    return found


def _size(layer: FixedConv, fixed: FixedGraph) -> str:
    source, made = (
        "x".join(map(str, fixed.shapes[tensor])) for tensor in (layer.inputs[0], layer.output)
    )
    kernel = "x".join(map(str, layer.weight.shape[2:]))
    return f"{source} -> {made}, {kernel}"


def _text(layer: FixedConv, fixed: FixedGraph, job: ModelJob, target: TileMachine) -> str:
    from tvm_npu.codegen.errors import PlanningError
    from tvm_npu.codegen.layers import conv_problem
    from tvm_npu.codegen.plan import planner
    from tvm_npu.codegen.plan.problem import Infeasible
    from tvm_npu.codegen.tiles.ir.write import write_ir
    from tvm_npu.codegen.tiles.plan.planning import stored_problem

    options = job.options
    machine = options.machine
    nmp = machine if isinstance(machine, NmpMachine) else None
    tile_machine = target if isinstance(machine, NmpMachine) else machine
    assert isinstance(tile_machine, TileMachine)
    problem = stored_problem(layer, fixed, tile_machine)
    asked = problem
    if nmp is not None:
        shapes = fixed.shapes[layer.inputs[0]], fixed.shapes[layer.output]
        asked = conv_problem(layer, *shapes, fixed.element_bytes)
    answer = planner(options.planner, options.limits).plan(asked, machine)  # type: ignore[arg-type]
    if isinstance(answer, Infeasible):
        raise PlanningError(f"layer {layer.name!r}: {answer}", layer.name, answer)
    comment = (
        f"layer {layer.name} of {job.path.name}, {options.precision}",
        f"planner {options.planner} for {machine.name}"
        + ("" if nmp is None else f", core after core, for {tile_machine.name}"),
    )
    return write_ir(problem, answer, tile_machine, nmp, comment)


def tile_machine_named(name: str) -> TileMachine:
    """Raises TargetError for a machine that is no tile machine."""
    machine = load_machine(name)
    if not isinstance(machine, TileMachine):
        raise TargetError(
            f"machine {machine.name!r} is of isa {machine.isa!r}; an execution plan in text runs "
            "on 'tiles'"
        )
    return machine
