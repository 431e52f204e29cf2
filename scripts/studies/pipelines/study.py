"""Everything that the reproduction runs, in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from studies.pipelines import guided_study, pipe_study, shisha_study
from studies.pipelines.cases import (
    CHIPLET_PLATFORMS,
    CHIPLETS,
    EDGE,
    SYNTHETIC,
    Case,
    all_cases,
    case_of,
    chain_of,
)
from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Adapted, Hints, Offline, Quality, Synthetic
from studies.pipelines.rows import Row, row_of, searches_for
from studies.pipelines.shisha_study import Latency, OwnPlaces, Seeds
from tvm_npu.cli.terminal import Steps

MODELS = (*CHIPLETS, *EDGE, *SYNTHETIC)
RANDOM_SEEDS = 100
SEEDED = ("shisha-h1", "shisha-h3")
"""The heuristics that the paper compares closest, H3 being its recommendation."""


@dataclass
class Study:
    """What was found; parts are empty when their networks were left out."""

    rows: list[Row] = field(default_factory=list)
    own_places: list[OwnPlaces] = field(default_factory=list)
    seeds: list[Seeds] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    quality: Quality | None = None
    hints: Hints | None = None
    adapted: list[Adapted] = field(default_factory=list)
    offline: list[Offline] = field(default_factory=list)
    synthetic: list[Synthetic] = field(default_factory=list)
    trust: list[Trust] = field(default_factory=list)


def run_study(models: Sequence[str], seeds: int, steps: Steps) -> Study:
    """``seeds``: runs of every search that draws random numbers, and of the guided one under noise.
    Raises ReproductionError when dynamic programming and enumeration disagree."""
    study = Study()
    chosen = tuple(model for model in MODELS if model in models)
    for model in chosen:
        steps.begin(f"{model}: layers")
        chain_of(model)
    cases = all_cases(chosen)
    steps.expect(2 * len(cases) + 3)
    for case in cases:
        name = f"{case.model} on {case.platform.name}"
        for search in searches_for(case):
            steps.begin(f"{name}: {search}")
            study.rows.append(row_of(case, search, seeds))
        steps.done()
        steps.begin(f"{name}: guided under noise")
        _trust(study, case, seeds)
        steps.done()
    steps.begin("Shisha: places, seeds, latency")
    _shisha(study, chosen)
    steps.done()
    steps.begin("Pipe-Search: quality, settings")
    if "vgg16" in chosen:
        four = case_of("vgg16", "tx2-4core-setting1")
        study.quality, study.hints = pipe_study.quality(four), pipe_study.hints(four)
        study.adapted = pipe_study.adaptation()
    study.offline = [pipe_study.offline(model) for model in EDGE if model in chosen]
    steps.done()
    steps.begin("Pipe-Search: synthetic networks")
    study.synthetic = pipe_study.synthetics(chosen)
    steps.done()
    return study


def _trust(study: Study, case: Case, seeds: int) -> None:
    study.trust.append(guided_study.exactly(case))
    study.trust.append(guided_study.noisy(case, seeds))
    study.trust.append(guided_study.rough(case, seeds))


def _shisha(study: Study, models: Sequence[str]) -> None:
    for model in CHIPLETS:
        if model not in models:
            continue
        for platform in CHIPLET_PLATFORMS:
            for search in SEEDED:
                study.own_places.append(shisha_study.own_places(case_of(model, platform), search))
        if model != "synthnet":  # Figure 6 shows the other two
            eight = case_of(model, "shisha-c5")
            study.seeds += [
                shisha_study.compare_seeds(eight, search, RANDOM_SEEDS) for search in SEEDED
            ]
    if "synthnet" in models:
        study.latencies = shisha_study.latencies(case_of("synthnet", "shisha-c5"), "shisha-h1")
