"""Searches for a stage configuration, all behind one call: `run_search`.

Each runs the same way on simulated places and on a pipeline that is really running: it asks for
configurations to be measured and is told the times of their stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.exact import (
    Enumeration,
    enumerate_space,
    exact_configuration,
    search_exact,
)
from tvm_npu.pipelines.search.exhaustive import search_exhaustive
from tvm_npu.pipelines.search.guided import search_guided
from tvm_npu.pipelines.search.local import search_annealing, search_hill, search_random
from tvm_npu.pipelines.search.pipe_search import search_pipe
from tvm_npu.pipelines.search.session import (
    BudgetSpent,
    Measure,
    SearchResult,
    Session,
    Trial,
)
from tvm_npu.pipelines.search.shisha import HEURISTICS, search_shisha
from tvm_npu.pipelines.search.space import space_size
from tvm_npu.sim.texts import shown

__all__ = [
    "Enumeration",
    "Measure",
    "SearchResult",
    "Trial",
    "enumerate_space",
    "exact_configuration",
    "run_search",
    "search_names",
    "space_size",
]

_SEARCHES: dict[str, Callable[..., Trial]] = {
    "pipe-search": search_pipe,
    **{f"shisha-{name}": partial(search_shisha, heuristic=name) for name in HEURISTICS},
    "exhaustive": search_exhaustive,
    "random-walk": search_random,
    "random-walk-seeded": partial(search_random, seeded=True),
    "hill-climbing": search_hill,
    "hill-climbing-seeded": partial(search_hill, seeded=True),
    "annealing": search_annealing,
    "annealing-seeded": partial(search_annealing, seeded=True),
    "exact": search_exact,
    "guided": search_guided,
}


def search_names() -> tuple[str, ...]:
    """All names that `run_search` knows."""
    return tuple(_SEARCHES)


def run_search(
    name: str,
    chain: LayerChain,
    platform: Platform,
    measure: Measure,
    *,
    seed: int = 0,
    budget: int | None = None,
    known: Sequence[Trial] = (),
    **options: Any,
) -> SearchResult:
    """Searches a fast configuration of ``chain`` on ``platform``.

    ``measure`` runs a configuration and tells its stages' times; ``budget``: at most so many of
    them (None: the search's own rule ends it); equal seeds give equal searches;
    ``known`` trials of earlier searches count as measured and cost no budget. Options are those
    of the search's function: ``alpha`` of Pipe-Search and Shisha, ``times`` of exact, ...

    Raises SearchError for an unknown name or a bad budget, seed or option.
    """
    if not isinstance(name, str) or name not in _SEARCHES:
        raise SearchError(f"unknown search {shown(name)}; known: {', '.join(_SEARCHES)}")
    fixed = ("session", "heuristic", "seeded")
    free = [key for key in signature(_SEARCHES[name]).parameters if key not in fixed]
    for option in options:
        if option not in free:
            raise SearchError(
                f"search {name} has no option {option}; it has {', '.join(free) or 'none'}"
            )
    session = Session(chain, platform, measure, seed=seed, budget=budget, known=known)
    try:
        best = _SEARCHES[name](session, **options)
    except BudgetSpent:
        best = session.best()
    finished = budget is None or session.count < budget
    return SearchResult(name, best, session.trials, session.asked, finished)
