"""Accuracy of int8 by technique, for networks with labelled images."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from studies.harness.options import add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import Sheet, print_sheets
from studies.int8.measuring import TECHNIQUES, Row, measured
from studies.int8.sets import DIGITS, available
from tvm_npu.cli.arguments import positive
from tvm_npu.cli.tables import Column

QUICK_IMAGES = 200


class Int8Study(Study[list[Row]]):
    name = "bench_int8"
    texts = Texts(
        "Right answers of networks on labelled images, in float and as the NPU computes them,\n"
        "under each technique of int8 quantization; the output's signal-to-noise ratio, and the\n"
        "simulated cycles of one inference. Regions run by the reference, float by onnxruntime;\n"
        "the simulator runs the first image and must agree to the bit.",
        "The digits come with the package; the other networks lie in a folder of pretrained\n"
        "models (see docs/measuring.md).",
        {"json": "write one object for each network and technique"},
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "model", available())
        add_several(parser, "--techniques", "technique", tuple(TECHNIQUES))
        parser.add_argument(
            "--images", type=positive, metavar="N", help="use the first N of a set (default: all)"
        )
        parser.add_argument(
            "--quick", action="store_true", help=f"{DIGITS} alone, {QUICK_IMAGES} images"
        )

    def parts(self, options: argparse.Namespace) -> list[Part[Row]]:
        models = [DIGITS] if options.quick else options.models
        count = QUICK_IMAGES if options.quick else options.images
        return [
            Part((model, technique), Row, partial(_measured, model, technique, count))
            for model in models
            for technique in options.techniques
        ]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> list[Row]:
        return list(found.values())

    def rows(self, result: list[Row]) -> Mapping[str, Sequence[Any]]:
        return {"json": result}

    def show(self, console: Console, result: list[Row]) -> None:
        for model in dict.fromkeys(row.model for row in result):
            own = [row for row in result if row.model == model]
            columns = [
                Column("technique", tuple(row.technique for row in own), key=True),
                Column("top-1", tuple(f"{row.top1_npu:.3f}" for row in own)),
                Column("right", tuple(f"{row.right_npu:,}" for row in own)),
                Column("float", tuple(f"{row.top1_float:.3f}" for row in own)),
                Column("right", tuple(f"{row.right_float:,}" for row in own)),
                Column("SQNR\ndB", tuple(_number(row.sqnr_db, ".1f") for row in own)),
                Column("cycles", tuple(_number(row.cycles, ",.0f") for row in own)),
                Column("int16\nlayers", tuple(str(row.int16_layers) for row in own)),
            ]
            print_sheets(console, [Sheet(f"{model}, {own[0].images:,} images", columns)])


STUDY = Int8Study()


def _measured(model: str, technique: str, count: int | None, bench: Bench) -> Row:
    return measured(model, technique, count)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
