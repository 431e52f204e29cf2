"""Runs the cases whose names come on stdin; one line of JSON each, in their order, on stdout."""

from __future__ import annotations

import json
import os
import sys
import warnings
from dataclasses import asdict

from studies.conformance.rows import REFUSED, Row, first_line


def group_of(name: str) -> str:
    if name.startswith("random-"):
        return "random"
    from studies.conformance.backend_cases import backend_cases

    return backend_cases()[name][0]


def run_named(name: str) -> Row:
    """A backend case, or a random graph by its seed."""
    if name.startswith("random-"):
        from studies.conformance.random_cases import run_random_case

        return run_random_case(name)
    from studies.conformance.backend_cases import run_backend_case

    return run_backend_case(name)


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        name = line.strip()
        try:
            row = run_named(name)
        except Exception as error:  # of the case itself: it is told like all others
            row = Row(name, group_of(name), REFUSED, REFUSED, reason=first_line(error))
        print(json.dumps(asdict(row)), file=answers, flush=True)


if __name__ == "__main__":
    main()
