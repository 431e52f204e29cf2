"""``tvm-npu pipeline``: a model as a pipeline of stages over the clusters of a platform."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_npu.cli.arguments import (
    Names,
    add_limits_argument,
    add_shape_argument,
    non_negative,
    positive,
    share,
)
from tvm_npu.cli.terminal import Terminal

DESCRIPTION = """\
Cuts an ONNX model into consecutive stages, each compiled by TVM for a place (a cluster of cores)
of the platform and run by a process pinned to it. The search tries configurations on the running
pipeline, on frames that flow through it; then the frames of --frames go through the best one and
are measured. Every result is compared with the serial model's, to the bit.

On a platform of simulated places the search runs on its time model and no frame flows; with
--simulate the frames of --frames flow through what it found in simulated time, through queues as
short as the runtime's, each stage's times --noise off.
"""
EXAMPLES = """\
examples:
  tvm-npu platform detect --out here.toml
  tvm-npu pipeline squeezenet.onnx --platform here.toml --search guided
  tvm-npu pipeline squeezenet.onnx --platform here.toml --search shisha-h3 --frames 1000 \\
      --input images/ --json run.json --trace stages.json
  tvm-npu pipeline resnet.onnx --platform shisha-c1 --search exhaustive
  tvm-npu pipeline resnet.onnx --platform shisha-c5 --simulate --frames 2000 --json run.json
"""
DEFAULT_SEARCH = "guided"
MOST_SAMPLES = 64
"""Frames of --input kept in memory; the stream repeats them."""
FRAMES = 100
TIMEOUT_S = 60.0
NOISE = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument(
        "--platform", required=True, metavar="FILE|NAME",
        help="platform file, or a built-in platform: see 'tvm-npu platform list'",
    )  # fmt: skip
    parser.add_argument(
        "--search", choices=Names(_search_names), default=DEFAULT_SEARCH, metavar="NAME",
        help=f"how a configuration is found (default: {DEFAULT_SEARCH}): %(choices)s",
    )  # fmt: skip
    parser.add_argument(
        "--frames", type=positive, metavar="N",
        help="frames to measure with the configuration that the search found (default: "
        f"{FRAMES}); on simulated places: needs --simulate",
    )  # fmt: skip
    parser.add_argument(
        "--simulate", action="store_true",
        help="on a platform of simulated places: let the frames of --frames flow in simulated time",
    )  # fmt: skip
    parser.add_argument(
        "--noise", type=share, metavar="SHARE",
        help="with --simulate: standard deviation of a stage's time from frame to frame, relative "
        f"(default: {NOISE:g})",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=positive, metavar="N",
        help="most trials of the search (default: the search ends by its own rule)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=non_negative, default=0, metavar="N",
        help="seed of the search, of the random input and of --noise (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--input", type=Path, metavar="DIR|NPZ",
        help="frames, repeated as often as needed: files as of 'profile --calibration', at most "
        f"{MOST_SAMPLES} frames of them. Without it: random input",
    )  # fmt: skip
    parser.add_argument(
        "--machine", metavar="FILE|NAME",
        help="partition the model for this NPU: its regions, simulated, are layers of the chain "
        "(number ranges come from --input). Without it everything runs on CPUs",
    )  # fmt: skip
    add_limits_argument(parser)
    add_shape_argument(parser)
    parser.add_argument(
        "--timeout", type=positive, metavar="SECONDS",
        help="on real places: longest time of a stage for one frame (default: "
        f"{TIMEOUT_S:g})",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE",
        help="write what each stage did and when, for chrome://tracing or ui.perfetto.dev (on "
        "simulated places: needs --simulate); with --machine also what the NPU's units do in one "
        "image, in simulated time",
    )  # fmt: skip


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from tvm_npu.cli.pipeline_job import run_pipeline

    return run_pipeline(args, terminal)


def _search_names() -> tuple[str, ...]:
    from tvm_npu.pipelines.search import search_names

    return search_names()
