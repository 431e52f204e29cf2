"""Searches for pipelines over 2 to 256 places and 10 to 1,000 layers; noise; fleets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from studies.harness.options import add_number
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import print_sheets
from studies.pipeline_scale.guided_noise import LIMIT, NoisyRun, noisy_run
from studies.pipeline_scale.plots import plot
from studies.pipeline_scale.rows import FleetRow, ScaleRow, fleet_rows, scale_rows, warm
from studies.pipeline_scale.tables import fleet_sheet, scale_sheet
from tvm_npu.pipelines.platform import MAXIMUM_PLACES

PLACES = tuple(2**power for power in range(1, 9))
LAYERS = (10, 30, 100, 300, 1000)
KINDS = (2, 4)
MOST_RUNS = 10_000
MOST_LAYERS = 1000

EPILOG = """\
Networks and platforms are drawn at random, each by its seed; a place is a roofline (see
docs/pipelines.md). Shares are of the proven optimum, or of a bound where its table would not fit.
"""


@dataclass(frozen=True)
class Found:
    scale: list[ScaleRow]
    noise: list[NoisyRun]
    fleets: list[FleetRow]


class PipelineScaleStudy(Study[Found]):
    name = "bench_pipeline_scale"
    texts = Texts(
        "Searches for pipeline stages on platforms of 2 to 256 places and networks of 10 to 1,000\n"
        "layers: CPU time and quality; guided under noise; fleets of unequal machines.",
        EPILOG,
        {"json": "write the rows"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        for option, what, default, most in (
            ("--places", "places", PLACES, MAXIMUM_PLACES),
            ("--layers", "layers", LAYERS, MOST_LAYERS),
        ):
            parser.add_argument(
                option, type=_between(2, most), nargs="+", default=list(default), metavar="N",
                help=f"numbers of {what} (default: {' '.join(map(str, default))})",
            )  # fmt: skip
        add_number(
            parser, "--runs", 100,
            f"runs of guided under noise, each on a network and platform of its own, 1 to "
            f"{MOST_RUNS}",
            _between(1, MOST_RUNS),
        )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        found = [
            _part(("scale", f"{places} places of {kinds} kinds", f"{layers} layers"),
                  list[ScaleRow], scale_rows, places, kinds, layers, 0)
            for places in dict.fromkeys(options.places)
            for kinds in KINDS
            if kinds <= places
            for layers in dict.fromkeys(options.layers)
        ]  # fmt: skip
        found += [
            _part(("noise", f"run {seed}"), NoisyRun, noisy_run, seed)
            for seed in range(options.runs)
        ]
        found += [
            _part(("fleet", f"{places} machines"), list[FleetRow], fleet_rows, places, 0)
            for places in dict.fromkeys(options.places)
        ]
        return found

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Found:
        def of(kind: str) -> list[Any]:
            return [value for key, value in found.items() if key[0] == kind]

        return Found(sum(of("scale"), []), of("noise"), sum(of("fleet"), []))

    def rows(self, result: Found) -> Mapping[str, Sequence[Any]]:
        return {"json": [*result.scale, *result.noise, *result.fleets]}

    def draw(self, result: Found, file_format: str) -> bytes:
        return plot(result.scale, file_format)

    def show(self, console: Console, result: Found) -> None:
        print_sheets(console, [scale_sheet(result.scale), fleet_sheet(result.fleets)])
        shares = [run.share for run in result.noise]
        within = sum(share >= 1 - LIMIT for share in shares)
        trials = sum(run.trials for run in result.noise) / len(shares)
        console.print(
            f"guided under 5 % noise: {within} of {len(shares)} runs within 1 % of the optimum, "
            f"the worst at {min(shares):.3f}, {trials:.0f} trials on average",
            soft_wrap=True,
        )


STUDY = PipelineScaleStudy()


def _part(key: Key, kind: Any, compute: Any, *arguments: Any) -> Part[Any]:
    def computed(bench: Bench) -> Any:
        warm()
        return compute(*arguments)

    return Part(key, kind, computed)


def _between(least: int, most: int) -> Any:
    def check(text: str) -> int:
        if not text.isdigit() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return check
