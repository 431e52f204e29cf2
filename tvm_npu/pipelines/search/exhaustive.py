"""Every configuration, run one by one; `exact.enumerate_space` does it on known times at once."""

from __future__ import annotations

from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.pipelines.search.space import all_configurations, size_text, space_size

MOST_CONFIGURATIONS = 100_000_000
"""A search that runs more of them has no end that anybody sees."""


def search_exhaustive(session: Session) -> Trial:
    """The whole space, fewest stages first. Raises SearchError without a budget for a space of
    more than `MOST_CONFIGURATIONS`."""
    size = space_size(len(session.chain), session.platform)
    if session.budget is None and size > MOST_CONFIGURATIONS:
        raise SearchError(
            f"search exhaustive: {len(session.platform)} places and {len(session.chain)} layers "
            f"have {size_text(size)} configurations; at most {MOST_CONFIGURATIONS:,} without a "
            "budget. Use exact, guided or shisha-h1, or give a budget"
        )
    for configuration in all_configurations(len(session.chain), session.platform):
        session.try_out(configuration)
    return session.best()
