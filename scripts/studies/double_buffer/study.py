"""Double-buffer tiling on a simulated Zynq-7020, beside the paper's figures."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.double_buffer.measuring import RUNS, LayerRow, Plans, Run, plans_of, row_of, run_layer
from studies.double_buffer.plots import plot
from studies.double_buffer.published import LAYERS
from studies.double_buffer.tables import lines, tables
from studies.harness.errors import StudyError
from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import print_sheets
from tvm_npu.codegen.plan.problem import ConvProblem

EPILOG = """\
Each convolution of FlowNetS's contracting part runs by itself with random values, checked bit for
bit: its DMA programs execute on a simulated PL-330 beside a core that convolves. "naive" stands for
the paper's tilings made by hand (see docs/planning.md for the rule).
"""
PLANNING = "planning"


class DoubleBufferStudy(Study[list[LayerRow]]):
    name = "reproduce_double_buffer"
    texts = Texts(
        "Naive and optimal double-buffer tilings of FlowNetS on a Zynq-7020:\n"
        "transfer times, use of the on-chip memory, whole times with and without caches.",
        EPILOG,
        {"json": "write a row a layer"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--layers", "layer", LAYERS)

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        from studies.double_buffer.layers import flownet_layers

        parts: list[Part[Any]] = []
        for name, problem in flownet_layers():
            if name in options.layers:
                parts.append(Part((name, PLANNING), Plans, partial(_plans, problem)))
                parts += [
                    Part((name, where, key), Run, partial(_run, problem, where, key))
                    for where, key in RUNS
                ]
        return parts

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[LayerRow]:
        return [
            row_of(name, plans, {run: found[(name, *run)] for run in RUNS})
            for (name, *what), plans in found.items()
            if what == [PLANNING]
        ]

    def rows(self, result: list[LayerRow]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def draw(self, result: list[LayerRow], file_format: str) -> bytes:
        return plot(result, file_format)

    def show(self, console: Console, result: list[LayerRow]) -> None:
        print_sheets(console, tables(result))
        for line in lines(result):
            console.print(line, soft_wrap=True)

    def check(self, result: list[LayerRow]) -> None:
        wrong = sum(row.bit_mismatches for row in result)
        if wrong:
            raise StudyError(f"{wrong} elements differ from the reference; the limit is 0")


STUDY = DoubleBufferStudy()


def _plans(problem: ConvProblem, bench: Bench) -> Plans:
    return plans_of(problem)


def _run(problem: ConvProblem, where: str, key: str, bench: Bench) -> Run:
    return run_layer(problem, where, key)
