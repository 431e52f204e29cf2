"""``tvm-npu tune``: tries plans of a model's layers on the simulator and logs their cycles."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_npu.cli.arguments import Names, add_limits_argument, non_negative, positive
from tvm_npu.cli.image_arguments import add_preparation_arguments
from tvm_npu.cli.model_job import add_question_arguments
from tvm_npu.cli.terminal import Terminal

DESCRIPTION = """\
Tunes every distinct convolution and fully connected layer of a model, and every pool or depthwise
convolution together with the convolution in front of it, where a machine can run the two as one:
plans are tried on the simulator, each layer alone, every value checked.

Every trial is a line of the log. The same command goes on where an interrupted one stopped, with
the same result; with more --trials it adds to them. One log can hold many models, machines, tuners
and seeds. Which values a model has makes no difference, so that calibration data is of use only
with --precision auto, which takes from it which layers compute in int16.
"""
EXAMPLES = """\
tuners:
  learned    a cost model (XGBoost) trained on all trials so far, simulated annealing over it
  annealing  simulated annealing, every step measured
  random     random plans

examples:
  tvm-npu tune lenet.onnx --log lenet.jsonl --trials 64
  tvm-npu compile lenet.onnx -o programs/ --planner learned --tuning-log lenet.jsonl
  tvm-npu tune resnet.onnx --log resnet.jsonl --warm --machine nmp-4x8-dual
  tvm-npu tune lenet.onnx --log lenet.jsonl --machine setup-a
"""
DEFAULT_TRIALS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_question_arguments(parser)
    add_preparation_arguments(parser)
    parser.add_argument(
        "--log", type=Path, required=True, metavar="FILE",
        help="the tuning log (JSON lines); a log that exists is continued",
    )  # fmt: skip
    parser.add_argument(
        "--trials", type=positive, default=DEFAULT_TRIALS, metavar="N",
        help=f"trials of each layer; trials in the log count (default: {DEFAULT_TRIALS})",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=non_negative, default=0, metavar="N",
        help="seed of the tuner and of --random-weights (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--tuner", choices=Names(_tuner_names), default="learned", metavar="NAME",
        help="see below (default: learned)",
    )  # fmt: skip
    parser.add_argument(
        "--warm", action="store_true",
        help="begin with the plans of analytic planners, not with random plans",
    )  # fmt: skip
    add_limits_argument(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    from tvm_npu.cli.tune_job import run_tune

    return run_tune(args, terminal)


def _tuner_names() -> tuple[str, ...]:
    from tvm_npu.codegen.tune.tuners import tuner_names

    return tuner_names()
