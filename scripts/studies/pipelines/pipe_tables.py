"""Pipe-Search's figures and the guided search as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from rich.table import Table

from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Adapted, Hints, Offline, Quality, Synthetic
from studies.pipelines.published import (
    EXHAUSTIVE_BANDS,
    EXHAUSTIVE_TRIALS,
    HINT_THROUGHPUT,
    PIPE_BANDS,
    PIPE_TRIALS,
)
from studies.pipelines.study import Study
from tvm_npu.cli.tables import Column, make_table

BEYOND = "-"


def pipe_tables(study: Study, width: int) -> Iterator[Table]:
    if study.quality is not None:
        yield quality_table(study.quality, width)
    if study.hints is not None:
        yield hints_table(study.hints, width)
    if study.adapted:
        yield adaptation_table(study.adapted, width)
    if study.offline:
        yield offline_table(study.offline, width)
    if study.synthetic:
        yield synthetic_table(study.synthetic, width)
    if study.trust:
        yield guided_table(study.trust, width)


def quality_table(found: Quality, width: int) -> Table:
    """Tables 3 and 4."""
    columns = [
        Column("search", ("pipe-search", "paper", "exhaustive", "paper"), name=True),
        Column(
            "trials",
            (str(found.trials), str(PIPE_TRIALS), f"{found.space:,}", f"{EXHAUSTIVE_TRIALS:,}"),
        ),
        Column("found", (str(found.found), "[7, 4, 10]", str(found.best), "[7, 4, 10]")),
    ]
    bands = (
        found.pipe_bands,
        (*PIPE_BANDS, None),
        found.space_bands,
        (*EXHAUSTIVE_BANDS, None),
    )
    for index, name in enumerate(("1 to 1.5", "1.5 to 2", "2 to 5", "beyond")):
        cells = [BEYOND if row[index] is None else f"{row[index]:.1f} %" for row in bands]
        columns.append(Column(name, tuple(cells)))
    title = "VGG16 on four cores, setting 1; time of the slowest stage over the best (paper: s)"
    return make_table(columns, width, title)


def hints_table(found: Hints, width: int) -> Table:
    """Table 5."""
    columns = [
        Column("", ("with hints", "without hints", "random"), name=True),
        Column("frames/s", tuple(f"{one:.2f}" for one in found.throughput)),
        Column("paper", tuple(f"{one:.1f}" for one in HINT_THROUGHPUT.values())),
        Column("trials", tuple(f"{one:.0f}" for one in found.trials)),
    ]
    return make_table(columns, width, "Pipe-Search with and without weights, VGG16, setting 1")


def adaptation_table(found: Sequence[Adapted], width: int) -> Table:
    """Table 6."""
    columns = [
        Column("setting", tuple(str(one.paper.number) for one in found)),
        Column("paper's\noptimum", tuple(str(list(one.paper.stages)) for one in found)),
        Column("rank\npaper", tuple(str(one.paper.rank) for one in found)),
        Column("\nhere", tuple(str(one.paper_rank_here) for one in found)),
        Column("frames/s\npaper", tuple(f"{one.paper.throughput:.2f}" for one in found)),
        Column("\nhere", tuple(f"{one.paper_throughput_here:.2f}" for one in found)),
        Column(
            "\nratio",
            tuple(f"{one.paper_throughput_here / one.paper.throughput:.2f}" for one in found),
        ),
        Column("found\nhere", tuple(str(list(one.found.stages)) for one in found)),
        Column("\nrank", tuple(str(one.rank) for one in found)),
        Column("\nframes/s", tuple(f"{one.throughput:.2f}" for one in found)),
        Column(
            "of the best\nin its space",
            tuple(f"{one.throughput / one.best_throughput:.3f}" for one in found),
        ),
    ]
    return make_table(columns, width, "VGG16 under the governor settings, pipe-search")


def offline_table(found: Sequence[Offline], width: int) -> Table:
    """Figure 4: no numbers are printed there."""
    columns = [
        Column("network", tuple(one.model for one in found), name=True),
        Column("longer stage\nmost even cut", tuple(f"{one.seed_share:.0f} %" for one in found)),
        Column("\ntuned", tuple(f"{one.found_share:.0f} %" for one in found)),
        Column("throughput\ngained", tuple(f"{one.gain:.1f}x" for one in found)),
    ]
    return make_table(columns, width, "Two stages under setting 3: weights alone, and tuned")


def synthetic_table(found: Sequence[Synthetic], width: int) -> Table:
    """Table 7."""
    columns = [
        Column("network", tuple(one.paper.network for one in found), name=True),
        Column("setting", tuple(str(one.paper.setting) for one in found)),
        Column("paper's\noptimum", tuple(str(list(one.paper.stages)) for one in found)),
        Column("rank\npaper", tuple(str(one.paper.rank) for one in found)),
        Column("\nhere", tuple(_span(one.paper_rank_here) for one in found)),
        Column("CV %\npaper", tuple(f"{one.paper.variation:.1f}" for one in found)),
        Column("\nhere", tuple(f"{one.paper_variation_here:.1f}" for one in found)),
        Column("of the\nbest here", tuple(f"{one.paper_share_here:.2f}" for one in found)),
        Column("found\nhere", tuple(str(list(one.found.stages)) for one in found)),
        Column("\nrank", tuple(str(one.rank) for one in found)),
        Column("\nCV %", tuple(f"{one.variation:.1f}" for one in found)),
        Column("\ntrials", tuple(str(one.trials) for one in found)),
        Column("of the\nbest", tuple(f"{one.share_of_best:.3f}" for one in found)),
    ]
    return make_table(columns, width, "Synth 1-3 on six cores, pipe-search with alpha 15")


def _span(ranks: tuple[int, int]) -> str:
    return str(ranks[0]) if ranks[0] == ranks[1] else f"{ranks[0]}-{ranks[1]}"


def guided_table(found: Sequence[Trust], width: int) -> Table:
    """Our own search from cold."""
    conditions = list(dict.fromkeys(one.condition for one in found))
    groups = [[one for one in found if one.condition == condition] for condition in conditions]
    shares = [[share for one in group for share in one.shares] for group in groups]
    trials = [[count for one in group for count in one.trials] for group in groups]
    columns = [
        Column("guided", tuple(conditions), name=True),
        Column("cases", tuple(str(len(group)) for group in groups)),
        Column("runs", tuple(str(len(own)) for own in shares)),
        Column("trials\nmost", tuple(str(max(own)) for own in trials)),
        Column("\nmean", tuple(f"{statistics.fmean(own):.1f}" for own in trials)),
        Column("throughput of\noptimum, worst", tuple(f"{min(own):.4f}" for own in shares)),
        Column("\nmedian", tuple(f"{statistics.median(own):.4f}" for own in shares)),
        Column(
            "within\n1 %",
            tuple(f"{sum(one >= 0.99 for one in own) / len(own):.0%}" for own in shares),
        ),
        Column(
            "\n3 %", tuple(f"{sum(one >= 0.97 for one in own) / len(own):.0%}" for own in shares)
        ),
    ]
    return make_table(columns, width, "The guided search from cold, all networks and platforms")


def pipe_lines(study: Study) -> Iterator[str]:
    """Where a published figure cannot be reached, and why."""
    if study.quality is not None:
        yield (
            f"21 layers have {study.quality.space:,} cuts into 2, 3 and 4 stages (20 + 190 + "
            f"1140); we found no set of cuts whose size is the paper's {EXHAUSTIVE_TRIALS:,}"
        )
    if study.adapted:
        first = study.adapted[0].paper
        yield (
            f"setting 3 contradicts the others if layers take time in proportion to their work: by "
            f"the paper's setting 1, {list(first.stages)} at {first.throughput} frames/s, a fast "
            "Denver core does at least 5.7 GMAC/s, by setting 4 two slow A57 cores at least 0.88; "
            "with these [15, 6] reaches 0.41 frames/s on one Denver core and the A57 pair, twice "
            "the paper's optimum of 0.21, so that no fixed speeds of the cores give its Table 6"
        )
