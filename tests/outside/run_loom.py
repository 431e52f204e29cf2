"""Run where the package of tests/outside_kind is installed: its machine through everything.

Prints one JSON object a line: what was done, and how many elements differ from the reference.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

MACHINE = "loom-16"
SEED, LAYERS = 11, 12


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def planned() -> None:
    """Layers under planners of loops, values against the reference."""
    from tests.outside.loom_layers import layers
    from tvm_npu.codegen.compile import compile_fixed
    from tvm_npu.codegen.reference import run_fixed
    from tvm_npu.runtime.session import Session
    from tvm_npu.sim.events import EventLog
    from tvm_npu.sim.machine_file import load_machine
    from tvm_npu.tuning.single_layer import random_inputs, single_layer

    for planner in sys.argv[2:]:
        for number, problem in enumerate(layers(SEED, LAYERS)):
            graph = single_layer(problem)
            program = compile_fixed(graph, load_machine(MACHINE), planner)
            inputs = random_inputs(graph)
            session = Session(program)
            log = EventLog()
            (output,) = session.run_fixed([inputs[name] for name in graph.inputs], events=log)
            expected = run_fixed(graph, inputs)[graph.outputs[0]]
            run = session.statistics
            assert run is not None
            (events,) = log.runs
            busy = {unit.name: unit.busy_cycles for unit in run.units}
            agree = events.busy_cycles() == busy and events.bytes_by_link() == run.bytes_by_link
            say(
                planner=planner, events=agree, layer=number, wrong=int((output != expected).sum()),
                macs=run.macs == problem.macs, cycles=run.cycles,
                predicted=program.layers[0].predicted_cycles,
            )  # fmt: skip


def _see(seen: list[tuple[str, Any, Any]], region: str, inputs: Any, outputs: Any) -> None:
    seen.append((region, inputs, outputs))


def built() -> None:
    """A model through `relay.build`, the NPU's regions against their reference."""
    import tvm
    from tvm import relay
    from tvm.contrib import graph_executor

    from tvm_npu.codegen.reference import run_fixed
    from tvm_npu.models import data, shared
    from tvm_npu.relay import partition_for_npu, region_fixed_graphs
    from tvm_npu.runtime import clear_sessions, find_session

    for name in sys.argv[2:]:
        if name == "digits_lenet":
            model, (images, _) = data.load_digits_lenet(), data.load_digits()
            calibration: Any = data.load_digits_calibration()
            feeds = [{"image": image[None]} for image in images[:5]]
        else:
            root = shared.find_shared_models()
            assert root is not None
            models = shared.SharedModels(root)
            model, entry = models.load(name), models.input_name(name)
            feeds = [{entry: x} for _, x in models.inputs(name)]
            calibration, feeds = feeds, feeds[:3]
        mod, params = relay.frontend.from_onnx(model)
        for precision in ("int16", "int8"):
            target = f"npu/{MACHINE}"
            made = partition_for_npu(
                mod, params, target=target, calibration=calibration, precision=precision
            )
            graphs = region_fixed_graphs(made)
            clear_sessions()
            library = relay.build(made, target=target)
            executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
            seen: list[tuple[str, Any, Any]] = []
            executor.run(**feeds[0])
            for region in graphs:
                find_session(region).observer = partial(_see, seen, region)
            wrong = 0
            for feed in feeds:
                executor.run(**feed)
            for region, inputs, outputs in seen:
                graph = graphs[region]
                expected = run_fixed(graph, dict(zip(graph.inputs, inputs, strict=True)))
                for output, at in zip(outputs, graph.outputs, strict=True):
                    wrong += int(np.count_nonzero(output != expected[at]))
            say(model=name, precision=precision, regions=len(graphs), runs=len(seen), wrong=wrong)


def stores() -> None:
    """Where its stores write, as its events tell it and as memory shows it, and the pictures of
    the layers' outputs."""
    from tests.outside.loom_layers import layers
    from tests.report.stores import seen, told
    from tvm_npu.codegen.compile import generate_quantized
    from tvm_npu.report.memory import rows_by_layer
    from tvm_npu.report.runs import RegionRun
    from tvm_npu.report.shares import activations_begin, layer_shares
    from tvm_npu.sim.machine_file import load_machine
    from tvm_npu.tuning.single_layer import random_inputs, single_layer

    for number, problem in enumerate(layers(SEED, 3)):
        graph, machine = single_layer(problem), load_machine(MACHINE)
        run = RegionRun.of("region", generate_quantized(graph, machine), True, True)
        program = run.session.program
        inputs = random_inputs(graph)
        arrays = [inputs[name] for name in graph.inputs]
        found, events = told(program, arrays)
        begin = activations_begin(program, machine.dram.base_address)
        (rows,) = rows_by_layer(events)
        (share,) = layer_shares(events, rows, run.outputs[0], begin)
        say(
            layer=number, told=found == seen(program, arrays), tiles=share.tiles,
            whole=bool((share.tile >= 0).all()), makers=events.names.makers,
        )  # fmt: skip


def mutants() -> None:
    """Changed programs: what a verification says of them."""
    from tests.verification.mutants import judged
    from tvm_npu.sim.machine_file import load_machine

    for verdict in judged(load_machine(MACHINE), seed=17, count=int(sys.argv[2])):
        say(outcome=verdict.outcome, row=verdict.mutant.row)


ACTIONS: dict[str, Callable[[], None]] = {
    "planned": planned,
    "built": built,
    "mutants": mutants,
    "stores": stores,
}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]]()
