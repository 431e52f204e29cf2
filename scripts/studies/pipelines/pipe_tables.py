"""Pipe-Search's figures and the guided search as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from studies.harness.tables import Sheet
from studies.pipelines.found import Found
from studies.pipelines.guided_study import Trust
from studies.pipelines.pipe_study import Adapted, Hints, Offline, Quality, Synthetic
from studies.pipelines.published import (
    EXHAUSTIVE_BANDS,
    EXHAUSTIVE_TRIALS,
    HINT_THROUGHPUT,
    PIPE_BANDS,
    PIPE_TRIALS,
)
from tvm_npu.cli.tables import Column

BEYOND = "-"


def pipe_tables(found: Found) -> Iterator[Sheet]:
    if found.quality is not None:
        yield quality_table(found.quality)
    if found.hints is not None:
        yield hints_table(found.hints)
    if found.adapted:
        yield adaptation_table(found.adapted)
    if found.offline:
        yield offline_table(found.offline)
    if found.synthetic:
        yield synthetic_table(found.synthetic)
    if found.trust:
        yield guided_table(found.trust)


def quality_table(found: Quality) -> Sheet:
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
    return Sheet(title, columns)


def hints_table(found: Hints) -> Sheet:
    """Table 5."""
    columns = [
        Column("", ("with hints", "without hints", "random"), name=True),
        Column("frames/s", tuple(f"{one:.2f}" for one in found.throughput)),
        Column("paper", tuple(f"{one:.1f}" for one in HINT_THROUGHPUT.values())),
        Column("trials", tuple(f"{one:.0f}" for one in found.trials)),
    ]
    return Sheet("Pipe-Search with and without weights, VGG16, setting 1", columns)


def adaptation_table(found: Sequence[Adapted]) -> Sheet:
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
    return Sheet("VGG16 under the governor settings, pipe-search", columns)


def offline_table(found: Sequence[Offline]) -> Sheet:
    """Figure 4: no numbers are printed there."""
    columns = [
        Column("network", tuple(one.model for one in found), name=True),
        Column("longer stage\nmost even cut", tuple(f"{one.seed_share:.0f} %" for one in found)),
        Column("\ntuned", tuple(f"{one.found_share:.0f} %" for one in found)),
        Column("throughput\ngained", tuple(f"{one.gain:.1f}x" for one in found)),
    ]
    return Sheet("Two stages under setting 3: weights alone, and tuned", columns)


def synthetic_table(found: Sequence[Synthetic]) -> Sheet:
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
    return Sheet("Synth 1-3 on six cores, pipe-search with alpha 15", columns)


def _span(ranks: tuple[int, int]) -> str:
    return str(ranks[0]) if ranks[0] == ranks[1] else f"{ranks[0]}-{ranks[1]}"


def guided_table(found: Sequence[Trust]) -> Sheet:
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
    return Sheet("The guided search from cold, all networks and platforms", columns)


def pipe_lines(found: Found) -> Iterator[str]:
    """Where a published figure cannot be reached, and why."""
    if found.quality is not None:
        yield (
            f"21 layers have {found.quality.space:,} cuts into 2, 3 and 4 stages (20 + 190 + "
            f"1140); we found no set of cuts whose size is the paper's {EXHAUSTIVE_TRIALS:,}"
        )
    if found.adapted:
        first = found.adapted[0].paper
        yield (
            f"setting 3 contradicts the others if layers take time in proportion to their work: by "
            f"the paper's setting 1, {list(first.stages)} at {first.throughput} frames/s, a fast "
            "Denver core does at least 5.7 GMAC/s, by setting 4 two slow A57 cores at least 0.88; "
            "with these [15, 6] reaches 0.41 frames/s on one Denver core and the A57 pair, twice "
            "the paper's optimum of 0.21, so that no fixed speeds of the cores give its Table 6"
        )
