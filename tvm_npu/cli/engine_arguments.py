"""Options of commands whose work can be shared among processes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import positive
from tvm_npu.cli.only_with import not_with

if TYPE_CHECKING:
    from tvm_npu.sweep.engines import Engine


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=positive, metavar="N",
        help="processes of this machine (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=("joblib", "dask"),
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
    _check_scheduler(args)
    alone = (args.workers or 1) == 1 and args.engine != "dask" and args.scheduler is None
    if alone:
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
    no scheduler answers, UsageError for options that a scheduler leaves no meaning."""
    _check_scheduler(args)
    from tvm_npu.sweep.engines import engine

    name = "dask" if args.scheduler else args.engine or "joblib"
    return engine(name, args.workers or 1, args.scheduler, user)


def _check_scheduler(args: argparse.Namespace) -> None:
    if args.scheduler is None:
        return
    not_with(args, ["--workers"], "--scheduler", "whose workers run already")
    if args.engine == "joblib":
        not_with(args, ["--engine"], "--scheduler", "whose workers are Dask's")
