"""Every configuration, run one by one; `exact.enumerate_space` does it on known times at once."""

from __future__ import annotations

from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.pipelines.search.space import all_configurations


def search_exhaustive(session: Session) -> Trial:
    """The whole space, fewest stages first."""
    for configuration in all_configurations(len(session.chain), session.platform):
        session.try_out(configuration)
    return session.best()
