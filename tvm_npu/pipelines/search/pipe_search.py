"""Pipe-Search (Soomro et al., Computing Frontiers 2021, Algorithms 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.search.balance import balanced_cuts
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.sim.numbers import check_whole
from tvm_npu.sim.texts import shown


def search_pipe(session: Session, alpha: int = 10, hints: bool = True) -> Trial:
    """Cuts in the order of their coefficient of variation, on the platform's places for that many
    stages. First phase: for every number of stages, until ``alpha`` trials in a row were no better
    than the best; second phase: the same again where the best was found. ``hints=False`` balances
    numbers of layers instead of weights (the paper's section 6.2).

    The paper sorts all cuts beforehand; here they are made one by one, so that a deep network does
    not exhaust memory. Places are not searched: they are `Platform.arrangement`.
    """
    check_whole(alpha, "alpha", SearchError, 1)
    if not isinstance(hints, bool):
        raise SearchError(f"hints is {shown(hints)}; True or False")
    weights = session.chain.weights if hints else (1.0,) * len(session.chain)
    lists: dict[int, Iterator[Configuration]] = {}
    seeds: dict[int, Trial] = {}
    fewest = 2 if session.most_stages > 1 else 1
    for stages in range(fewest, session.most_stages + 1):
        places = session.platform.arrangement(stages)
        if places is None:
            continue
        lists[stages] = _configurations(weights, places)
        seeds[stages] = session.try_out(next(lists[stages]))
    if not seeds:
        raise SearchError(
            f"platform {session.platform.name} has no arrangement of {fewest} to "
            f"{session.most_stages} places, and pipe-search chooses none itself"
        )
    best = min(seeds.values(), key=lambda trial: trial.bottleneck_s)
    for stages in lists:  # phase 1; its first configuration is the seed, which is measured
        unlucky = 0 if best is seeds[stages] else 1
        best = _walk(session, lists[stages], best, alpha, unlucky)
    stages = len(best.configuration)
    return _walk(session, lists[stages], best, alpha, 0)


def _configurations(weights: Sequence[float], places: tuple[int, ...]) -> Iterator[Configuration]:
    for stages in balanced_cuts(weights, len(places)):
        yield Configuration(stages, places)


def _walk(
    session: Session, cuts: Iterator[Configuration], best: Trial, alpha: int, unlucky: int
) -> Trial:
    """Goes on in ``cuts`` until ``alpha`` trials in a row were no better than the best."""
    while unlucky < alpha:
        configuration = next(cuts, None)
        if configuration is None:
            break
        trial = session.try_out(configuration)
        if trial.bottleneck_s < best.bottleneck_s:
            best, unlucky = trial, 0
        else:
            unlucky += 1
    return best
