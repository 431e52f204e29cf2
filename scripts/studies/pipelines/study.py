"""Pipe-Search and Shisha on simulated execution places, and our own search beside them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console

from studies.harness.options import add_number, add_several
from studies.harness.study import Bench, Key, Part, Study, Texts
from studies.harness.tables import print_sheets
from studies.pipelines import guided_study, pipe_study, shisha_study
from studies.pipelines.cases import (
    CHIPLET_PLATFORMS,
    CHIPLETS,
    EDGE,
    SYNTHETIC,
    case_names,
    case_of,
)
from studies.pipelines.found import SEEDED, Found
from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Adapted, Hints, Offline, Quality, Synthetic
from studies.pipelines.pipe_tables import pipe_lines, pipe_tables
from studies.pipelines.plots import plot
from studies.pipelines.published import SYNTH_OPTIMA
from studies.pipelines.rows import Row, row_of
from studies.pipelines.shisha_study import Latency, OwnPlaces, Seeds
from studies.pipelines.shisha_tables import shisha_lines, shisha_tables
from tvm_npu.pipelines.search import search_names

EPILOG = """\
The papers measured a Jetson TX2 and gem5; here a roofline model of each place stands for both (see
docs/pipelines.md). Every optimum is proven: by enumeration, and where that does not end by dynamic
programming, which is checked against enumeration wherever both end.
"""
MODELS = (*CHIPLETS, *EDGE, *SYNTHETIC)
MOST_SEEDS = 100
RANDOM_SEEDS = 100
EIGHT, FOUR = "shisha-c5", "tx2-4core-setting1"
One = TypeVar("One")


class PipelinesStudy(Study[Found]):
    name = "reproduce_pipelines"
    texts = Texts(
        "Searches for pipeline stages on the networks and platforms of two papers:\n"
        "throughput beside the optimum, trials and convergence beside the published ones.",
        EPILOG,
        {"json": "write a row a network, platform and search"},
    )
    draws = True

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add_several(parser, "--models", "model", MODELS)
        add_number(
            parser, "--seeds", 5,
            "runs of each search that draws random numbers, and of guided under noise, 1 to "
            f"{MOST_SEEDS}",
            _seeds,
        )  # fmt: skip

    def parts(self, options: argparse.Namespace) -> list[Part[Any]]:
        """Raise StudyError when dynamic programming and enumeration disagree."""
        models = tuple(model for model in MODELS if model in options.models)
        return [
            *_case_parts(models, options.seeds),
            *_shisha_parts(models),
            *_pipe_search_parts(models),
        ]

    def collect(self, options: argparse.Namespace, found: Mapping[Key, Any]) -> Found:
        values: list[Any] = []
        for value in found.values():
            values += value if isinstance(value, list) else [value]

        def of(kind: type[One]) -> list[One]:
            return [value for value in values if isinstance(value, kind)]

        return Found(
            of(Row), of(OwnPlaces), of(Seeds), of(Latency), next(iter(of(Quality)), None),
            next(iter(of(Hints)), None), of(Adapted), of(Offline), of(Synthetic), of(Trust),
        )  # fmt: skip

    def rows(self, result: Found) -> Mapping[str, Sequence[Any]]:
        return {"json": result.rows}

    def draw(self, result: Found, file_format: str) -> bytes:
        return plot(result, file_format)

    def show(self, console: Console, result: Found) -> None:
        print_sheets(console, [*shisha_tables(result), *pipe_tables(result)])
        for line in (*shisha_lines(result), *pipe_lines(result)):
            console.print(line, soft_wrap=True)


STUDY = PipelinesStudy()


def _seeds(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_SEEDS}")
    return int(text)


def _part(key: Key, kind: Any, compute: Callable[..., Any], *arguments: Any) -> Part[Any]:
    """Of what needs no other part."""

    def computed(bench: Bench) -> Any:
        return compute(*arguments)

    return Part(key, kind, computed)


def _case_parts(models: tuple[str, ...], seeds: int) -> list[Part[Any]]:
    """``seeds``: runs of every search that draws random numbers, and of the guided one under
    noise."""
    parts = []
    for name in case_names(models):
        for search in search_names():
            parts.append(_part((*name, search), Row | None, _row, *name, search, seeds))
        parts.append(_part((*name, "guided under noise"), list[Trust], _trust, *name, seeds))
    return parts


def _row(model: str, platform: str, search: str, seeds: int) -> Row | None:
    return row_of(case_of(model, platform), search, seeds)


def _trust(model: str, platform: str, seeds: int) -> list[Trust]:
    case = case_of(model, platform)
    return [
        guided_study.exactly(case),
        guided_study.noisy(case, seeds),
        guided_study.rough(case, seeds),
    ]


def _shisha_parts(models: tuple[str, ...]) -> list[Part[Any]]:
    parts = []
    for model in CHIPLETS:
        if model not in models:
            continue
        for on in CHIPLET_PLATFORMS:
            for search in SEEDED:
                key = (model, on, search, "places")
                parts.append(_part(key, OwnPlaces, _own_places, model, on, search))
        if model != "synthnet":  # Figure 6 shows the other two
            for search in SEEDED:
                parts.append(_part((model, EIGHT, search, "seeds"), Seeds, _seeded, model, search))
    if "synthnet" in models:
        parts.append(_part(("synthnet", EIGHT, "latencies"), list[Latency], _latencies))
    return parts


def _own_places(model: str, platform: str, search: str) -> OwnPlaces:
    return shisha_study.own_places(case_of(model, platform), search)


def _seeded(model: str, search: str) -> Seeds:
    return shisha_study.compare_seeds(case_of(model, EIGHT), search, RANDOM_SEEDS)


def _latencies() -> list[Latency]:
    return shisha_study.latencies(case_of("synthnet", EIGHT), "shisha-h1")


def _pipe_search_parts(models: tuple[str, ...]) -> list[Part[Any]]:
    parts = []
    if "vgg16" in models:
        parts += [
            _part(("vgg16", FOUR, "quality"), Quality, _quality),
            _part(("vgg16", FOUR, "hints"), Hints, _hints),
            _part(("vgg16", "settings"), list[Adapted], pipe_study.adaptation),
        ]
    for model in EDGE:
        if model in models:
            parts.append(_part((model, "offline"), Offline, pipe_study.offline, model))
    for paper in SYNTH_OPTIMA:
        if paper.network in models:
            key = (paper.network, f"setting {paper.setting}", "Table 7")
            parts.append(_part(key, Synthetic, pipe_study.synthetic, paper))
    return parts


def _quality() -> Quality:
    return pipe_study.quality(case_of("vgg16", FOUR))


def _hints() -> Hints:
    return pipe_study.hints(case_of("vgg16", FOUR))
