"""Options of commands whose work can be shared among processes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import positive

if TYPE_CHECKING:
    from tvm_npu.sweep.engines import Engine


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=positive, default=1, metavar="N",
        help="processes of this machine (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=("joblib", "dask"), default="joblib",
        help="who keeps the processes (default: joblib)",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of Dask workers that run already, elsewhere"
    )


@contextmanager
def workers_beside(
    args: argparse.Namespace, user: str, check: Callable[[], None]
) -> Iterator[Engine | None]:
    """`engine_of` for the time of a block, once ``check`` has passed; None where one process is
    enough, which is this one."""
    if args.workers == 1 and args.engine == "joblib" and args.scheduler is None:
        yield None
        return
    check()
    found = engine_of(args, user)
    try:
        yield found
    finally:
        found.stop()


def engine_of(args: argparse.Namespace, user: str) -> Engine:
    """For ``user``, which messages name. Raises SweepError where its package is missing and where
    no scheduler answers."""
    from tvm_npu.sweep.engines import engine

    return engine("dask" if args.scheduler else args.engine, args.workers, args.scheduler, user)
