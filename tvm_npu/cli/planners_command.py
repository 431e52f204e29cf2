"""``tvm-npu planners``: the names that ``--planner`` takes."""

from __future__ import annotations

import argparse

from tvm_npu.cli.terminal import Terminal
from tvm_npu.codegen.plan import RegisteredPlanner, planner_names, tuned_planner_names

DESCRIPTION = """\
The planners that decide how a layer is cut into tiles and spread over cores, as --planner takes
them.
"""
EXAMPLES = """\
examples:
  tvm-npu planners
  tvm-npu profile lenet.onnx --planner fixed-ws
"""

SUMMARIES = {
    "tso": "tensor slicing optimization: every split, schedule and tile, DRAM bursts counted",
    "tso-noburst": "the same search by bytes alone",
    "fixed-ks": "tso with filters spread over all TLEs",
    "fixed-ks-ofm": "tso with filters and output rows spread over TLEs",
    "fixed-ofm": "tso with output rows spread over all TLEs",
    "fixed-is": "tso with the input-stationary schedule only",
    "fixed-os": "tso with the output-stationary schedule only",
    "fixed-ws": "tso with the weight-stationary schedule only",
    "exact": "proven least predicted time of every layer; joins layers where that is faster",
    "exact-dma": "the same without the ring buses, and so without joined layers",
    "exact-layers": "exact for every layer by itself",
    "snowflake": "what the paper on Snowflake's compiler chooses, by its rules, without a search",
    "exact-traffic": "least traffic with the memory outside; proven on tile machines",
    "eplanner": "e-PlaNNer: pruned tilings and dataflows by performance / bytes",
    "zhang": "e-PlaNNer's search with the output-stationary dataflow only",
    "ma": "all channels in a tile before anything else, so that no partial sums move",
    "smartshuttle": "output or weight stationary by a rule, factors by priority",
    "double-buffer": "least transfer time C + s*p + n*t of divisor tilings in half the memory",
    "naive": "divisor tilings that fill at least 80 % of the memory, cut evenly",
    "learned": "the fastest measured plan of a tuning log (see 'tvm-npu tune'), else exact",
    "exact-tuned": "exact's best plans, ranked anew by what a tuning log has measured",
}


def summary(name: str) -> str:
    """One line about a planner: from the table, else what its class says about itself."""
    return SUMMARIES.get(name) or RegisteredPlanner(name).explained()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    names = (*planner_names(), *tuned_planner_names())
    width = max(map(len, names))
    for name in names:
        terminal.out.print(f"{name:<{width}}  {summary(name)}", soft_wrap=True)
    return 0
