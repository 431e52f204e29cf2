"""``tvm-npu ir``: the execution plan of one convolution as text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.cli.errors import CliError, UsageError
from tvm_npu.cli.files import check_outputs, write_text
from tvm_npu.cli.model_job import ModelJob, add_model_arguments, load_and_partition
from tvm_npu.cli.shown import shown
from tvm_npu.cli.terminal import Terminal
from tvm_npu.errors import TargetError
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine

if TYPE_CHECKING:
    from tvm_npu.codegen.backend import PlanTexts
    from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedConv

TEXT_MACHINE = "setup-a"

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
        "--for", dest="text_machine", metavar="FILE|NAME",
        help=f"with an NMP: the tile machine of the text (default: {TEXT_MACHINE})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the text to FILE (default: print it)"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    check_outputs(args, "out")
    target = load_machine(args.text_machine or TEXT_MACHINE)
    texts_of(target)
    _check_for(args)
    with terminal.steps() as steps:
        job = load_and_partition(args, terminal, steps)
        found = _convolutions(job)
    if args.layer is None:
        for layer, fixed in found:
            terminal.out.print(f"{shown(layer.name)}  {_size(layer, fixed)}", soft_wrap=True)
        return 0
    chosen = [pair for pair in found if pair[0].name == args.layer]
    if not chosen:
        names = ", ".join(layer.name for layer, _ in found)
        raise CliError(f"no convolution {args.layer!r}; there are {names or 'none'}")
    text = _text(*chosen[0], job, target)
    if args.out is None:
        terminal.out.file.write(text)
    else:
        write_text(args.out, text)
    return 0


def _check_for(args: argparse.Namespace) -> None:
    """UsageError for --for beside a machine whose plans are texts themselves."""
    from tvm_npu.codegen.backends import backend_of

    machine = load_machine(args.machine)
    if args.text_machine is not None and backend_of(machine).texts is not None:
        raise UsageError(
            f"argument --for: only with an NMP as --machine; {machine.name!r} is a tile machine, "
            "and the text is of its own plan"
        )


def _convolutions(job: ModelJob) -> list[tuple[FixedConv, FixedGraph]]:
    from tvm_npu.codegen.ops import FixedConv
    from tvm_npu.codegen.passes.dilation import with_live_taps

    found = []
    for symbol in job.partitioned.symbols:
        fixed = with_live_taps(job.partitioned.fixed_graph(symbol))
        found += [(layer, fixed) for layer in fixed.layers if isinstance(layer, FixedConv)]
    return found


def _size(layer: FixedConv, fixed: FixedGraph) -> str:
    source, made = (
        "x".join(map(str, fixed.shapes[tensor])) for tensor in (layer.inputs[0], layer.output)
    )
    kernel = "x".join(map(str, layer.weight.shape[2:]))
    return f"{source} -> {made}, {kernel}"


def _text(
    layer: FixedConv, fixed: FixedGraph, job: ModelJob, target: MachineDescription
) -> str:
    from tvm_npu.codegen.backends import backend_of
    from tvm_npu.codegen.errors import PlanningError
    from tvm_npu.codegen.plan import planner
    from tvm_npu.codegen.plan.layers import question_of
    from tvm_npu.codegen.plan.problem import Infeasible

    options = job.options
    machine = options.machine
    kind = backend_of(machine)
    asked = question_of(layer, fixed, machine)
    answer = planner(options.planner, options.limits).plan(asked, machine)
    if isinstance(answer, Infeasible):
        raise PlanningError(f"layer {layer.name!r}: {answer}", layer.name, answer)
    made = f"planner {options.planner} for {machine.name}"
    comment = (f"layer {layer.name} of {job.path.name}, {options.precision}", made)
    if kind.texts is not None:
        return kind.texts.write(asked, answer, machine, comment)
    comment = (comment[0], f"{made}, core after core, for {target.name}")
    problem, steps = question_of(layer, fixed, target), kind.steps(asked, answer, machine)
    return texts_of(target).write_steps(problem, steps, target, comment)


def texts_of(machine: MachineDescription) -> PlanTexts[Any, Any]:
    """Raises TargetError for a machine of a kind that runs no execution plans in text."""
    from tvm_npu.codegen.backends import backend, backend_names, backend_of

    texts = backend_of(machine).texts
    if texts is None:
        kinds = (isa for isa in backend_names() if backend(isa).texts is not None)
        raise TargetError(
            f"machine {machine.name!r} is of isa {machine.isa!r}; an execution plan in text runs "
            f"on {', '.join(map(repr, kinds))}"
        )
    return texts
