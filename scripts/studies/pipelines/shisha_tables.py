"""Shisha's figures as tables for people, ours beside the published ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.harness.tables import Sheet
from studies.pipelines.cases import CHIPLETS
from studies.pipelines.figures import (
    EIGHT,
    HEURISTICS,
    OTHERS,
    best_heuristics,
    chiplet_rows,
    faster_share,
    find,
    heuristic_shares,
    slower,
)
from studies.pipelines.found import SEEDED, Found
from studies.pipelines.published import (
    PIPE_SHARE_8,
    RANDOM_SEED_GAIN,
    RANDOM_SEED_TIME,
    SHISHA_SHARE,
    SHISHA_SHARE_8,
    SHISHA_TRIALS,
    SPEED_UP,
)
from studies.pipelines.rows import FRAMES, UNENDING, Row
from studies.pipelines.shisha_study import Latency, OwnPlaces, Seeds
from tvm_npu.cli.tables import Column

NONE = "-"
FOUR = "shisha-c2"


def shisha_tables(found: Found) -> Iterator[Sheet]:
    models = [model for model in CHIPLETS if any(row.model == model for row in found.rows)]
    if not models:
        return
    yield solutions_table(found.rows, models)
    yield convergence_table(found.rows, models)
    yield heuristics_table(found.rows)
    yield places_table(found.own_places)
    if found.seeds:
        yield seeds_table(found.seeds)
    if found.latencies:
        yield latency_table(found.latencies)


def solutions_table(rows: Sequence[Row], models: Sequence[str]) -> Sheet:
    """Figure 5 and section 7.3: four places, exhaustive search ends."""
    searches = (*HEURISTICS, *OTHERS, "exact", "guided")
    columns = [Column("search", tuple(searches), name=True)]
    for model in models:
        own = [find(rows, model, FOUR, search) for search in searches]
        columns += [
            Column(
                f"{model}\nof best",
                tuple(f"{row.share_of_best:.4f}" if row else NONE for row in own),
            ),
            Column("\ntrials", tuple(f"{row.trials:,}" if row else NONE for row in own)),
            Column("\nruns", tuple(f"{row.executions:,}" if row else NONE for row in own)),
            Column(
                "\n% of cuts",
                tuple(
                    f"{100 * row.executions / row.cuts:.2f}"
                    if row and not row.search.startswith(UNENDING)
                    else NONE
                    for row in own
                ),
            ),
        ]
    sizes = []
    for model in models:
        row = find(rows, model, FOUR, "exact")
        if row is not None:
            share = SHISHA_SHARE[model]
            sizes.append(f"{model} {row.cuts:,} cuts, {row.space:,} in all, paper {share} %")
    title = f"Four places ({FOUR}); throughput over the optimum's ({'; '.join(sizes)})"
    return Sheet(title, columns)


def convergence_table(rows: Sequence[Row], models: Sequence[str]) -> Sheet:
    """Figure 4: eight places; seconds of simulated running until a search's best was found."""
    searches = [
        search
        for search in (*HEURISTICS, *OTHERS, "guided")
        if any(find(rows, model, EIGHT, search) for model in models)
    ]
    columns = [Column("search", tuple(searches), name=True)]
    for model in models:
        own = [find(rows, model, EIGHT, search) for search in searches]
        base = find(rows, model, EIGHT, "shisha-h1")
        columns += [
            Column(
                f"{model}\nof best",
                tuple(f"{row.share_of_best:.4f}" if row else NONE for row in own),
            ),
            Column("\nruns", tuple(f"{row.executions:,}" if row else NONE for row in own)),
            Column(
                "\nconverged s", tuple(f"{row.convergence_s:,.0f}" if row else NONE for row in own)
            ),
            Column(
                "\nover H1",
                tuple(
                    f"{row.convergence_s / base.convergence_s:,.1f}" if row and base else NONE
                    for row in own
                ),
            ),
        ]
    return Sheet(f"Eight places ({EIGHT}); {FRAMES} frames a trial", columns)


def heuristics_table(rows: Sequence[Row]) -> Sheet:
    """Figure 7: H1 to H6, throughput over the optimum's, mean over the networks."""
    shares = {name: heuristic_shares(rows, name) for name in (*HEURISTICS, "guided")}
    platforms = list(shares["shisha-h1"])
    columns = [Column("heuristic", tuple(shares), name=True)]
    for platform in platforms:
        own = tuple(f"{share[platform]:.3f}" for share in shares.values())
        columns.append(Column(platform.removeprefix("shisha-").upper(), own))
    runs = []
    for name in shares:
        found = chiplet_rows(rows, name)
        runs.append(f"{sum(row.executions for row in found) / len(found):.1f}")
    columns.append(Column("mean runs", tuple(runs)))
    return Sheet("Shisha's heuristics; throughput over the optimum's", columns)


def places_table(found: Sequence[OwnPlaces]) -> Sheet:
    """Shisha moves layers, never places: beside the best cut on its own places."""
    rows = list(dict.fromkeys((one.model, one.platform) for one in found))
    columns = [
        Column("network", tuple(model for model, _ in rows), name=True),
        Column("platform", tuple(platform for _, platform in rows)),
    ]
    for search in SEEDED:
        own = {(one.model, one.platform): one.share for one in found if one.search == search}
        columns.append(Column(search, tuple(f"{own[row]:.4f}" for row in rows)))
    return Sheet("Over the best of all cuts on the places Shisha chose", columns)


def seeds_table(found: Sequence[Seeds]) -> Sheet:
    """Figure 6."""
    columns = [
        Column("network", tuple(one.model for one in found), name=True),
        Column("search", tuple(one.search for one in found)),
        Column("random\nseeds", tuple(str(one.seeds) for one in found)),
        Column("seed better\nthan", tuple(f"{one.seeds_beaten:.0%}" for one in found)),
        Column("solution\nbetter than", tuple(f"{one.beaten:.0%}" for one in found)),
        Column("throughput\nover mean", tuple(f"{one.gain:.3f}" for one in found)),
        Column("\npaper", tuple(_published(RANDOM_SEED_GAIN, one.model) for one in found)),
        Column("their time\nover own", tuple(f"{one.slower:.2f}" for one in found)),
        Column("\npaper", tuple(_published(RANDOM_SEED_TIME, one.model) for one in found)),
    ]
    return Sheet(f"Shisha's seed beside random ones, eight places ({EIGHT})", columns)


def _published(values: dict[str, float], model: str) -> str:
    return f"{values[model]:.2f}" if model in values else NONE


def latency_table(found: Sequence[Latency]) -> Sheet:
    """Figure 9."""
    first = found[0].optimum
    columns = [
        Column("latency s", tuple(f"{one.latency_s:.0e}" for one in found)),
        Column("shisha-h1\nframes/s", tuple(f"{one.shisha:.4f}" for one in found)),
        Column("guided", tuple(f"{one.guided:.4f}" for one in found)),
        Column("optimum", tuple(f"{one.optimum:.4f}" for one in found)),
        Column("shisha\nof optimum", tuple(f"{one.shisha / one.optimum:.4f}" for one in found)),
        Column("optimum over\nthat at 1 ns", tuple(f"{one.optimum / first:.4f}" for one in found)),
    ]
    return Sheet(f"SynthNet on {EIGHT}: latency between places", columns)


def shisha_lines(found: Found) -> Iterator[str]:
    """What the tables amount to."""
    rows = found.rows
    if not chiplet_rows(rows, "shisha-h1"):
        return
    low, high = SHISHA_TRIALS
    for name in SEEDED:
        own = chiplet_rows(rows, name)
        mean = sum(row.executions for row in own) / len(own)
        distinct = sum(row.trials for row in own) / len(own)
        yield (
            f"{name}: {mean:.1f} runs on average, {distinct:.1f} of them distinct "
            f"(paper: {low} to {high} at alpha 10)"
        )
        ratios = slower(rows, name)
        if ratios:
            mean = sum(one.mean for one in ratios) / len(ratios)
            geometric = sum(one.geometric for one in ratios) / len(ratios)
            yield (
                f"other searches converge {mean:,.0f} times as late as {name} on eight places, "
                f"{geometric:,.0f} by geometric means over networks (paper: about {SPEED_UP:g}): "
                + ", ".join(f"{one.search} {one.mean:,.1f}" for one in ratios)
            )
    eight = {name: find(rows, "synthnet", EIGHT, name) for name in ("shisha-h1", "pipe-search")}
    if all(eight.values()):
        one, other = (
            f"{100 * row.executions / row.cuts:.2f} %" for row in eight.values() if row is not None
        )
        yield (
            f"SynthNet on eight places: shisha-h1 runs {one} of the cuts (paper "
            f"{SHISHA_SHARE_8} %), pipe-search {other} (paper {PIPE_SHARE_8} %)"
        )
    faster = faster_share(rows, "shisha-h3", "shisha-h1")
    winners = best_heuristics(rows)
    if faster is not None and winners is not None:
        yield (
            f"H3 converges no later than H1 in {faster:.0%} of the cases (paper: 90 %); "
            f"H1 or H3 is the best heuristic in {winners:.0%} (paper: 80 %)"
        )
    for name in SEEDED:
        shares = [one.share for one in found.own_places if one.search == name]
        if shares:
            equal = sum(share > 1 - 1e-9 for share in shares)
            yield (
                f"{name} finds the best cut on its own places in {equal} of {len(shares)} cases "
                f"(worst {min(shares):.3f}); the optimum may need other places"
            )
