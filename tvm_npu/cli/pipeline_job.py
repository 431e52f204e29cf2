"""What ``tvm-npu pipeline`` does: cuts, compiles, searches, streams."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tvm_npu.calibration import Sample, synthetic
from tvm_npu.calibration_files import CalibrationFiles, calibration_files
from tvm_npu.cli.errors import CliError, UsageError
from tvm_npu.cli.files import check_outputs, write_bytes, write_json
from tvm_npu.cli.only_with import only_with
from tvm_npu.cli.onnx_file import import_file, parse_shapes
from tvm_npu.cli.pipeline_command import FRAMES, MOST_SAMPLES, NOISE, TIMEOUT_S
from tvm_npu.cli.pipeline_report import (
    print_report,
    print_simulated,
    report_json,
    simulated_json,
)
from tvm_npu.cli.pipeline_stream import SimulatedFrames, simulated_frames
from tvm_npu.cli.terminal import Steps, Terminal
from tvm_npu.options import make_options
from tvm_npu.pipelines.fleet import check_work
from tvm_npu.pipelines.places import running_places
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.times import SimulatedMeasure, simulated_table
from tvm_npu.temporary import temporary_folder

if TYPE_CHECKING:
    from tvm_npu.door.models import PartitionedModel
    from tvm_npu.pipelines.cut import CutModel

REFRESH_S = 0.2
"""Between two updates of the progress bar: drawing one for each frame would slow the stream."""


@dataclass(frozen=True)
class _Job:
    """``samples`` are what flows; ``partitioned`` is the model with its regions, if it has some."""

    model: CutModel
    platform: Platform
    samples: Sequence[Sample]
    partitioned: PartitionedModel | None


def run_pipeline(args: argparse.Namespace, terminal: Terminal) -> int:
    """Exit code of ``tvm-npu pipeline``."""
    platform = load_platform(args.platform)
    if args.json is not None and args.json == args.trace:
        raise UsageError("arguments --json and --trace name the same file")
    check_outputs(args, "json", "trace")
    if args.search == "exact" and not platform.simulated:
        raise CliError(
            f"search exact needs the times of every layer on every place, and those of platform "
            f"{platform.name} are not known before it runs: choose another search"
        )
    _check_simulation(args, platform)
    if platform.simulated:
        with terminal.steps() as steps:
            job = _prepare(args, platform, terminal, steps)
            content = _simulate(args, job, terminal, steps)
    else:
        _check_places(platform)
        content = _stream(args, platform, terminal)
    if args.json is not None:
        write_json(args.json, content)
    return 0


def _check_places(platform: Platform) -> None:
    """Says before the work which cores do not exist, and which processors."""
    from tvm_npu.door.find import door
    from tvm_npu.pipelines.stage_compiler import place_targets

    running_places(platform)
    place_targets(door(), platform)


def _frames(args: argparse.Namespace) -> int:
    return int(args.frames or FRAMES)


def _check_simulation(args: argparse.Namespace, platform: Platform) -> None:
    """What --simulate and --noise need, before the work."""
    why = "since frames that run have their own"
    only_with(args, ["--noise"], "--simulate", args.simulate, why)
    if args.simulate and not platform.simulated:
        raise CliError(
            f"platform {platform.name} has real places: --simulate needs simulated ones, whose "
            "times are known; without it frames flow on these"
        )
    flows = args.simulate or not platform.simulated
    why = "without which none flow on simulated places"
    only_with(args, ["--frames"], "--simulate", flows, why)
    why = f"and those of platform {platform.name} are simulated: nothing is waited for"
    only_with(args, ["--timeout"], "real places", not platform.simulated, why)
    if args.simulate:
        check_work(1, _frames(args))
    elif platform.simulated and args.trace is not None:
        raise CliError(
            f"platform {platform.name} is simulated: no frame flows, there is nothing to trace; "
            "with --simulate there is"
        )


def _prepare(
    args: argparse.Namespace, platform: Platform, terminal: Terminal, steps: Steps
) -> _Job:
    shapes = parse_shapes(args.shape)
    npu = None if args.machine is None else make_options(args.machine, seed=args.seed)
    files = None if args.input is None else calibration_files(args.input)
    imported = import_file(args.model, shapes, terminal, steps)
    if files is None:
        samples = list(synthetic(imported.inputs, args.seed))
    else:
        samples = list(islice(CalibrationFiles(files, imported.inputs), MOST_SAMPLES))
        if not samples:
            raise CliError(f"{str(args.input)!r} holds no frame")
    steps.begin("optimising and cutting the model")
    partitioned = None if npu is None else imported.partition(npu, samples)
    model = (partitioned or imported).cut(platform, args.model.stem)
    return _Job(model, platform, samples, partitioned)


def _simulate(
    args: argparse.Namespace, job: _Job, terminal: Terminal, steps: Steps
) -> dict[str, Any]:
    steps.begin(f"searching ({args.search})")
    chain, platform = job.model.chain, job.platform
    measure = SimulatedMeasure(simulated_table(chain, platform))
    result = run_search(args.search, chain, platform, measure, seed=args.seed, budget=args.budget)
    frames: SimulatedFrames | None = None
    if args.simulate:
        steps.begin(f"simulating {_frames(args):,} frames")
        noise = NOISE if args.noise is None else args.noise
        frames = simulated_frames(platform, result.best, _frames(args), noise, args.seed)
        if args.trace is not None:
            from tvm_npu.cli.pipeline_trace import SIMULATED_CLOCK, pipeline_trace

            steps.begin("writing the trace")
            events = frames.trace_events(platform)
            trace = pipeline_trace(
                events, job.partitioned, job.samples, args.limits, SIMULATED_CLOCK
            )
            write_bytes(args.trace, trace)
    print_simulated(chain, platform, result, frames, terminal)
    return simulated_json(chain, platform, result, frames)


def _stream(args: argparse.Namespace, platform: Platform, terminal: Terminal) -> dict[str, Any]:
    from tvm_npu.cli.pipeline_trace import pipeline_trace
    from tvm_npu.door.find import door
    from tvm_npu.pipelines.placed_stages import PlacedStages
    from tvm_npu.pipelines.stream import ResultDiffers, tune_and_measure
    from tvm_npu.pipelines.tuner import OnlineTuner, TunerOptions
    from tvm_npu.runtime.pipeline import Pipeline
    from tvm_npu.runtime.pipeline.trace import trace_events

    with temporary_folder("tvm-npu-pipeline-") as folder:
        with terminal.steps() as steps:
            job = _prepare(args, platform, terminal, steps)
            stages = PlacedStages(door(), job.model, platform, folder, args.limits)
            steps.begin(f"compiling {len(job.model)} layers")
            stages.compile_primitives()
            fastest = platform.speed_order[0]
            steps.begin("running the serial model")
            references = stages.references(job.samples, fastest)
            steps.begin("starting the pipeline")
            options = TunerOptions(args.search, seed=args.seed, budget=args.budget)
            with Pipeline(
                stages.deploy(stages.serial(fastest)),
                running_places(platform),
                timeout_s=args.timeout or TIMEOUT_S,
            ) as pipeline:
                # Every place's process is up before frames flow.
                for place in platform.speed_order[1:]:
                    pipeline.discard(pipeline.prepare(stages.deploy(stages.serial(place))))
                tuner = OnlineTuner(pipeline, job.model.chain, platform, stages.deploy, options)
                shown_s = 0.0

                def progress(part: str, done: int) -> None:
                    nonlocal shown_s
                    if time.monotonic() - shown_s < REFRESH_S:
                        return
                    shown_s = time.monotonic()
                    if part == "tuning":
                        steps.begin(f"searching ({args.search}): configuration {stages.deployed}")
                    else:
                        steps.reach(done, _frames(args))
                        steps.begin(f"frame {done:,} of {_frames(args):,}")

                try:
                    report = tune_and_measure(
                        pipeline, tuner, stages.deploy, job.samples, references, _frames(args),
                        progress,
                        compiling=lambda: stages.compiling,
                    )  # fmt: skip
                except ResultDiffers as error:
                    targets = sorted({one.target for one in stages.targets})
                    reason = ""
                    if len(targets) > 1:
                        reason = (
                            f"; places are compiled for {' and '.join(targets)}: cores with and "
                            "without fused multiply-add round differently"
                        )
                    raise CliError(f"{error}{reason}") from error
                if args.trace is not None:
                    events = trace_events(pipeline.times(), pipeline.deployments, pipeline.places)
        if args.trace is not None:
            with terminal.steps() as steps:
                steps.begin("writing the trace")
                trace = pipeline_trace(events, job.partitioned, job.samples, args.limits)
            write_bytes(args.trace, trace)
    chain = job.model.chain
    print_report(chain, platform, args.search, report, terminal)
    return report_json(chain, platform, args.search, report)
