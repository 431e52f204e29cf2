"""One measurement of the main benchmark in a process of its own, so that its memory is its own."""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tvm_npu.runtime as npu_runtime
from studies.main.quantized import sources
from studies.main.tables import SOURCE
from studies.shared.bench_models import Case, Inputs, cases, image_input
from tvm_npu.accuracy import measure
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.models.detection import Detection, detections, matched, ultraface_boxes
from tvm_npu.options import make_options
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import machine_from_dict
from tvm_npu.sim.making_code import machine_code_seconds

Array = NDArray[Any]

SMALL_TILES = {"max_tile_m": 3, "max_tile_n": 5, "max_tile_r": 4, "max_tile_c": 9}
LARGEST_CHECKED = 20
"""Images whose region outputs are compared with the reference, bit by bit."""


def _infer(built: BuiltModel, input_name: str, images: Array) -> list[Array]:
    """Every output for every image, [N, ...] each."""
    answers = [built.run({input_name: image[None]}) for image in images]
    return [np.concatenate(outputs) for outputs in zip(*answers, strict=True)]


def measure_stock(case: Case, folder: Path) -> dict[str, Any]:
    """Stock TVM for the CPU: build time, and the float outputs for all images."""
    model = case.model()
    built = build_onnx(model, target=None)
    outputs = _infer(built, image_input(model).name, case.inputs().images)
    np.savez(folder / f"{case.name}.npz", *outputs)
    return {"stock_compile_s": built.compile_s}


def measure_npu(
    case: Case, folder: Path, precision: str, machine: MachineDescription, small_tiles: bool
) -> dict[str, Any]:
    """The same through the NPU: all figures of one row."""
    model, inputs = case.model(), case.inputs()
    input_name = image_input(model).name
    built = build_onnx(
        model,
        machine,
        {input_name: inputs.calibration},
        precision=precision,
        tile_limits=SMALL_TILES if small_tiles else None,
    )
    del model
    report = built.report
    assert report is not None and built.partitioned is not None

    _infer(built, input_name, inputs.images[:1])
    sessions = npu_runtime.sessions()
    simulate_s, cycles = _one_inference(sessions, built, input_name, inputs.images[:1])
    mismatches = _mismatches(
        built.partitioned.fixed_graphs(), sessions, built, input_name, inputs.images
    )
    for session in sessions.values():
        session.timing = len(inputs.images) == 1
    outputs = _infer(built, input_name, inputs.images)
    return {
        "bit_mismatches": mismatches,
        "npu_mac_share": report.mac_share,
        "regions": len(report.regions),
        **_judge(case, inputs, outputs, folder),
        "compile_s": built.compile_s,
        "simulate_s": simulate_s,
        "cycles": cycles,
        "code_bytes": sum(s.statistics.code_bytes for s in sessions.values()),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "images": len(inputs.images),
    }


def measure_source(name: str, machine: MachineDescription) -> dict[str, Any]:
    """A quantized model beside its own runtime: all figures of one row."""
    source = sources()[name]()
    partitioned = source.model.partition(make_options(machine), None)
    report = partitioned.report
    found = measure(partitioned, source.samples(), layer_samples=0)
    has_labels = found.labelled > 0
    return {
        "bit_mismatches": 0,  # or `measure` had raised
        "npu_mac_share": report.mac_share,
        "regions": len(report.regions),
        "sqnr_db": found.sqnr_db if np.isfinite(found.sqnr_db) else 200.0,
        "within_one_step": found.within_one,
        "source_within_one_step": source.agrees,
        "top1_source": found.top1_float / found.images if has_labels else None,
        "top1_npu": found.top1_npu / found.images if has_labels else None,
        "agreement": found.agreement / found.images,
        "images": found.images,
        "cycles": found.cycles,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _one_inference(
    sessions: Any, built: BuiltModel, input_name: str, image: Array
) -> tuple[float, float]:
    """(seconds in the simulator, cycles) of one warm inference, values and timing together."""
    spent = 0.0
    originals = {}

    def timed(original: Any) -> Any:
        def run(arrays: Any) -> Any:
            nonlocal spent
            begin, made = time.perf_counter(), machine_code_seconds()
            try:
                return original(arrays)
            finally:
                spent += time.perf_counter() - begin - (machine_code_seconds() - made)

        return run

    for name, session in sessions.items():
        originals[name] = session.run
        session.run = timed(session.run)
    _infer(built, input_name, image)
    for name, session in sessions.items():
        session.run = originals[name]
    return spent, sum(session.statistics.cycles for session in sessions.values())


def _mismatches(
    graphs: dict[str, FixedGraph], sessions: Any, built: BuiltModel, input_name: str, images: Array
) -> int:
    """Elements of region outputs that differ from the reference, over the checked images."""
    count = 0

    def observer(graph: FixedGraph) -> Any:
        def compare(arrays: list[Array], results: list[Array]) -> None:
            nonlocal count
            wanted = run_fixed(graph, dict(zip(graph.inputs, arrays, strict=True)))
            for name, result in zip(graph.outputs, results, strict=True):
                count += int(np.count_nonzero(wanted[name] != result))

        return compare

    if sessions.keys() != graphs.keys():
        raise RuntimeError(f"regions {sorted(graphs)} but sessions {sorted(sessions)}")
    for name, session in sessions.items():
        session.observer = observer(graphs[name])
    step = max(1, len(images) // LARGEST_CHECKED)
    _infer(built, input_name, images[::step][:LARGEST_CHECKED])
    for session in sessions.values():
        session.observer = None
    return count


def _judge(case: Case, inputs: Inputs, outputs: list[Array], folder: Path) -> dict[str, Any]:
    """Accuracy against the truth, agreement with float, SQNR of the worst output."""
    path = folder / f"{case.name}.npz"
    result: dict[str, Any] = {
        "sqnr_db": None, "top1_float": None, "top1_npu": None, "agreement": None
    }  # fmt: skip
    if not path.exists():
        return result
    with np.load(path) as stored:
        floats = [stored[name] for name in stored.files]
    result["sqnr_db"] = min(_sqnr_db(f, n) for f, n in zip(floats, outputs, strict=True))
    if case.judge == "class":
        answers = [np.argmax(o[0].reshape(len(o[0]), -1), axis=1) for o in (floats, outputs)]
        result["agreement"] = float(np.mean(answers[0] == answers[1]))
        if inputs.labels is not None:
            result["top1_float"] = float(np.mean(answers[0] == inputs.labels))
            result["top1_npu"] = float(np.mean(answers[1] == inputs.labels))
    elif case.judge == "detection":
        found = [_detect(o) for o in (floats, outputs)]
        same = [
            len(a) == len(b) == matched(a, b, minimum_iou=0.9)
            for a, b in zip(found[0], found[1], strict=True)
        ]
        result["agreement"] = float(np.mean(same))
        if inputs.labels is not None:
            counts = [np.array([len(d) for d in f]) for f in found]
            result["top1_float"] = float(np.mean(counts[0] == inputs.labels))
            result["top1_npu"] = float(np.mean(counts[1] == inputs.labels))
    return result


def _detect(outputs: list[Array]) -> list[list[Detection]]:
    scores, offsets = outputs
    return [
        list(detections(s[None], ultraface_boxes(o[None])))
        for s, o in zip(scores, offsets, strict=True)
    ]


def _sqnr_db(wanted: Array, found: Array) -> float:
    noise = float(np.sum((wanted.astype(np.float64) - found) ** 2))
    signal = float(np.sum(wanted.astype(np.float64) ** 2))
    return 10 * float(np.log10(signal / noise)) if noise > 0 else 200.0


def _figures(options: argparse.Namespace) -> dict[str, Any]:
    if options.mode == "stock":
        return measure_stock(cases()[options.case], options.folder)
    machine = machine_from_dict(json.loads(options.machine.read_text()))
    if options.mode == SOURCE:
        return measure_source(options.case, machine)
    case = cases()[options.case]
    return measure_npu(case, options.folder, options.mode, machine, options.small_tiles)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("mode", choices=["stock", SOURCE, "int16", "int8"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--machine", type=Path)
    parser.add_argument("--small-tiles", action="store_true")
    options = parser.parse_args()
    figures = _figures(options)
    options.result.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
