"""The process that runs cases: it may crash. Its parent reads a line before and after each."""

from __future__ import annotations

import json
import resource
import signal
import sys
import time

CPU_SECONDS = 5
"""Of a case; the process ends by SIGPROF then."""
MEMORY_BYTES = 6 << 30
"""Of the process's addresses: what is more fails to be allocated."""


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(name: str, first: str, last: str, folder: str) -> None:
    """Cases ``first`` to ``last`` of a target, or those in the files of ``folder``."""
    import warnings
    from pathlib import Path

    from fuzzing.targets import TARGETS, case_of, outcome

    warnings.simplefilter("ignore")
    target = TARGETS[name]
    for seed in range(3 if target.compiled else 1):  # what compiles, compiles now
        outcome(target, case_of(target, -1 - seed))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    files = sorted(Path(folder).glob("*")) if folder else []
    cases = files or range(int(first), int(last))
    print(json.dumps({"ready": time.process_time()}), flush=True)
    for case in cases:
        made = time.process_time()
        data = case.read_bytes() if isinstance(case, Path) else case_of(target, case)
        print(json.dumps({"begin": str(case)}), flush=True)
        before = _peak_kib()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        found = outcome(target, data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = (_peak_kib() - before) >> 10
        if grown > 1024:
            found = f"bad memory: {grown} MiB"
        used = time.process_time() - made
        print(json.dumps({"end": str(case), "found": found, "cpu_s": used}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
