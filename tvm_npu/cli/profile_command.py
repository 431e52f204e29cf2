"""``tvm-npu profile``: where a model's cycles and bytes go, layer by layer."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.cli.arguments import Names, add_limits_argument, positive
from tvm_npu.cli.errors import UsageError
from tvm_npu.cli.files import check_outputs, write_bytes, write_csv, write_json, write_text
from tvm_npu.cli.model_job import (
    PARTITION_STEPS,
    ModelJob,
    add_model_arguments,
    calibration_text,
    compiled,
    load_and_partition,
)
from tvm_npu.cli.only_with import only_with
from tvm_npu.cli.onnx_file import is_tflite, read_onnx
from tvm_npu.cli.terminal import Steps, Terminal, after
from tvm_npu.sim.making_code import Stopwatch

if TYPE_CHECKING:
    from tvm_npu.accuracy import Accuracy
    from tvm_npu.calibration import Sample
    from tvm_npu.report.profile import Profile
    from tvm_npu.report.runs import RegionRun

DESCRIPTION = """\
Imports an ONNX model into TVM, compiles its NPU regions and runs inferences on the simulator.
Shows a row for each layer with what binds it, totals, and what stays on the CPU and why.

Input is the calibration data, in order, or random when there is none. Figures are those of one
inference (its whole batch), averaged over the runs. MAC use is the share of the peak MAC rate;
predicted cycles are the planner's. Bound says what is busy longest: the units that compute (mac),
that move data (dma) or that issue instructions (control); waits, when none works half of the time.
MAC and DMA cycles are those of the busiest unit; in wait cycles no unit does anything. Of roof is
the least time that the machine's peak rates allow, as a share of the layer's.
"""
EXAMPLES = """\
examples:
  tvm-npu profile lenet.onnx
  tvm-npu profile resnet.onnx --calibration images/ --precision int8 --json resnet.json
  tvm-npu profile resnet.onnx --trace resnet.json --trace-layers conv2_1:conv2_3
  tvm-npu profile resnet.onnx --html resnet.html --overlay resnet.npu.onnx
  tvm-npu profile open.onnx --shape image=1,3,224,224 --machine my-npu.toml --no-timing
"""


MOST_INSTRUCTIONS = 200_000_000
"""Of a region's run unless --limits say: about a minute. Networks take some millions; memories of a
few bytes make plans of billions."""
SLOW_S = 30.0
OVERLAY_VALUE = "time_us"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_limits_argument(parser)
    parser.add_argument(
        "--runs", type=positive, default=1, metavar="N", help="number of inferences (default: 1)"
    )
    parser.add_argument(
        "--no-timing", dest="timing", action="store_false",
        help="faster: count values, MACs and bytes, but no cycles",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true",
        help="all columns in narrow terminals too, in several tables",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write what every unit did when, as JSON for Perfetto (ui.perfetto.dev) or "
        "chrome://tracing",
    )  # fmt: skip
    parser.add_argument(
        "--trace-layers", metavar="FIRST:LAST",
        help="layers of the trace, by name or number from 1 on (default: all, as far as the file "
        "stays small enough to be opened)",
    )  # fmt: skip
    parser.add_argument(
        "--html", type=Path, metavar="FILE",
        help="write a report that a browser opens without a network",
    )  # fmt: skip
    parser.add_argument(
        "--compare", type=Path, action="append", default=[], metavar="FILE.json",
        help="for --html: a profile that --json wrote, shown beside this one; once for each",
    )  # fmt: skip
    parser.add_argument(
        "--overlay", type=Path, action="append", default=[], metavar="FILE.onnx|FILE.json",
        help="write the model with what was found as metadata of its nodes, for Netron (.onnx), or "
        "node data for Model Explorer (.json); once for each file",
    )  # fmt: skip
    parser.add_argument(
        "--overlay-value", choices=Names(_overlay_values), metavar="NAME",
        help="for --overlay FILE.json, what colours the nodes: time_us (default), place, bound, "
        "roofline_share, own_sqnr_db or q_point",
    )  # fmt: skip
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write a row for each layer, columns with units"
    )


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.trace is not None and not args.timing:
        raise UsageError("argument --trace: not allowed with --no-timing, which knows no times")
    only_with(args, ["--trace-layers"], "--trace", args.trace, "which they are of")
    only_with(args, ["--compare"], "--html", args.html, "whose page shows it")
    coloured = any(path.suffix == ".json" for path in args.overlay)
    only_with(args, ["--overlay-value"], "--overlay FILE.json", coloured, "which it colours")
    _check_overlays(args)
    check_outputs(args, "json", "csv", "trace", "html", "overlay")
    others = _others(args)
    watch = Stopwatch()
    with terminal.steps() as steps:
        with watch.part("import_and_partition"):
            job = load_and_partition(args, terminal, steps)
        regions = len(job.partitioned.report.regions)
        steps.expect(PARTITION_STEPS + regions + args.runs)
        profile, runs = _profiled(job, args, terminal, steps, watch)
    from tvm_npu.cli.profile_tables import print_profile

    print_profile(profile, terminal.out, args.verbose)
    if args.json is not None:
        write_json(args.json, profile.to_dict())
        terminal.wrote(args.json)
    if args.csv is not None:
        from tvm_npu.report.table import rows

        write_csv(args.csv, rows(profile))
        terminal.wrote(args.csv)
    if args.trace is not None:
        _write_trace(args, runs, profile, terminal)
    if args.html is not None or args.overlay:
        _write_on_model(args, job, runs, profile, others, terminal)
    return 0


def _others(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The profiles of ``--compare``, read before the work: one that cannot be read, or is none,
    ends the command at once."""
    if not args.compare:
        return []
    from tvm_npu.report.page.comparison import read_profile

    return [read_profile(path) for path in args.compare]


def _overlay_values() -> tuple[str, ...]:
    from tvm_npu.report.overlay import VALUES

    return VALUES


def _check_overlays(args: argparse.Namespace) -> None:
    if args.overlay and is_tflite(args.model):
        raise UsageError(
            f"argument --overlay: {str(args.model)!r} is no ONNX model, and overlays are for these"
        )
    for path in args.overlay:
        if path.suffix not in (".onnx", ".json"):
            raise UsageError(f"argument --overlay: {str(path)!r} ends in neither .onnx nor .json")
        if path.resolve() == args.model.resolve():
            raise UsageError(f"argument --overlay: {str(path)!r} is the model itself")


def _write_trace(
    args: argparse.Namespace, runs: list[RegionRun], profile: Profile, terminal: Terminal
) -> None:
    from tvm_npu.report.trace import make_trace

    trace = make_trace(runs, profile.report.refusals, args.trace_layers)
    write_bytes(args.trace, trace.content)
    terminal.wrote(args.trace)
    if trace.coarse:
        layers = "1 layer" if len(trace.coarse) == 1 else f"{len(trace.coarse)} layers"
        terminal.note(
            f"{str(args.trace)!r} has no room for all events: for {layers} it says only when units "
            f"work; --trace-layers {trace.coarse[0]}, for one, shows that layer's events"
        )


def _write_on_model(
    args: argparse.Namespace,
    job: ModelJob,
    runs: list[RegionRun],
    profile: Profile,
    others: list[dict[str, Any]],
    terminal: Terminal,
) -> None:
    """The page and the overlays, which show the model's own graph; that of TensorFlow Lite files
    is not read."""
    model = None
    if not is_tflite(job.path):
        model = read_onnx(job.path, args.seed if args.random_weights else None)
    sqnr_db, advice = _noise_by_layer(job)
    if args.html is not None:
        from tvm_npu.report.model_graph import graph_of_onnx
        from tvm_npu.report.page import make_page

        graph = None
        if model is not None:
            graph = graph_of_onnx(model, profile.layers, profile.report.refusals)
        page = make_page(profile, runs, graph, sqnr_db, others, advice)
        write_text(args.html, page)
        terminal.wrote(args.html)
    if args.overlay and model is not None:
        from tvm_npu.report.overlay import notes_by_node, overlay_bytes

        graphs = job.partitioned.fixed_graphs().values()
        notes = notes_by_node(model, profile, graphs, sqnr_db)
        value = args.overlay_value or OVERLAY_VALUE
        for path in args.overlay:
            write_bytes(path, overlay_bytes(path, model, notes, value))
            terminal.wrote(path)


def _noise_by_layer(
    job: ModelJob,
) -> tuple[dict[tuple[str, str], tuple[float | None, float | None]], dict[tuple[str, str], str]]:
    """(own, accumulated) in dB by region and layer, None where nothing differs, and what would
    help; empty without calibration data."""
    if job.calibration is None:
        return {}, {}
    rows = _accuracy(job, SQNR_SAMPLES).flat_rows()
    sqnr_db = {
        (row["region"], row["layer"]): (row["own_db"], row["accumulated_db"]) for row in rows
    }
    advice = {(row["region"], row["layer"]): row["advice"] for row in rows if row["advice"]}
    return sqnr_db, advice


def _profiled(
    job: ModelJob,
    args: argparse.Namespace,
    terminal: Terminal,
    steps: Steps,
    watch: Stopwatch,
) -> tuple[Profile, list[RegionRun]]:
    from tvm_npu.calibration import images_of_run
    from tvm_npu.report.profile import profile_of
    from tvm_npu.report.runs import EventRoom, RegionRun

    limits = args.limits
    if limits.instructions is None:
        limits = replace(limits, instructions=MOST_INSTRUCTIONS)
    room = EventRoom()
    tiny = "still planning and making code; memories of a few bytes cut layers into many tiles"
    with watch.part("compile"), after(SLOW_S, lambda: terminal.note(tiny)):
        runs = [
            RegionRun.of(symbol, generated, args.timing, args.timing, limits, room)
            for symbol, generated in compiled(job, steps)
        ]
    samples = _announced(islice(_samples(job), args.runs), args.runs, terminal, steps)
    slow = (
        f"still simulating; a region's run ends with an error after {limits.instructions:,} "
        "instructions, --limits instructions=N says another number"
    )
    with watch.part("simulate"), after(SLOW_S, lambda: terminal.note(slow)):
        job.partitioned.run_regions({run.symbol: run for run in runs}, samples)
    with watch.part("sqnr"):
        sqnr_db = _output_sqnr_db(job, terminal)
    profile = profile_of(
        runs,
        job.partitioned.report,
        f"{job.path}, random weights" if args.random_weights else str(job.path),
        images=images_of_run(job.inputs),
        calibration=calibration_text(args),
        seed=job.options.seed,
        output_sqnr_db=sqnr_db,
        host_seconds={**watch.seconds, "machine_code": watch.machine_code_s},
    )
    return profile, runs


SQNR_SAMPLES = 4
WHOM_TO_BLAME = "'tvm-npu accuracy' shows the layer to blame"


def _output_sqnr_db(job: ModelJob, terminal: Terminal) -> float | None:
    """Over the first calibration samples; a note where it is low. None without such data."""
    if job.calibration is None:
        return None
    from tvm_npu.accuracy import LOW_SQNR_DB

    found = _accuracy(job, 0).sqnr_db
    if found < LOW_SQNR_DB:
        small = [
            f"the values of {one.layer} (root mean square {one.rms:.2g}) are below one step of "
            f"its numbers ({one.step:.2g}), so that little is left of them; other samples may "
            "have larger ones"
            for region in _accuracy(job, SQNR_SAMPLES).regions
            for one in region.layers
            if one.is_below_one_step
        ]
        terminal.note(
            f"output SQNR {found:.1f} dB is below {LOW_SQNR_DB:.0f} dB: answers have little to do "
            f"with those of float; {'; '.join([*small[:1], WHOM_TO_BLAME])}"
        )
    return found if math.isfinite(found) else None


def _accuracy(job: ModelJob, layer_samples: int) -> Accuracy:
    """On the first calibration samples, of which there must be some."""
    from tvm_npu.accuracy import Labelled, measure

    samples = (Labelled(sample) for sample in islice(job.calibration or (), SQNR_SAMPLES))
    return measure(job.partitioned, samples, layer_samples=layer_samples, simulated=0)


def _samples(job: ModelJob) -> Iterator[Sample]:
    """Inputs without end: calibration samples over and over, or random ones."""
    if job.calibration is not None:
        return cycle(job.calibration)
    from tvm_npu.calibration import synthetic

    return cycle(synthetic(job.inputs, job.options.seed))


def _announced(
    samples: Iterable[Sample], count: int, terminal: Terminal, steps: Steps
) -> Iterator[Sample]:
    """``samples``; the bar moves as they are taken."""
    for number, sample in enumerate(samples, 1):
        first = ": the first ever compiles the simulator" if number == 1 else ""
        steps.begin(f"simulating inference {number} of {count}{first}")
        with terminal.simulating() if number == 1 else nullcontext():
            yield sample
        steps.done()
