"""``scripts/soak --minutes N --json FILE``: models compiled and exported, programs in sessions and
threads, pipelines whose stages are killed, over and over in one process. Says how memory grows, how
many bits differ from the first round's, which frames get lost, and what is left at the end."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psutil

from tests.runtime import networks
from tests.runtime.pipeline.stages import frame, make, places
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.pipeline import Deployment, Pipeline
from tvm_npu.runtime.pipeline.errors import StageDied
from tvm_npu.runtime.session import Session

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
MOST_GROWTH = 0.02
FIRST_ROUNDS = 3
"""In which caches and pools still fill."""
THREADS, FRAMES = 4, 60


@dataclass
class Findings:
    """``rss_mib`` after each round; what is ``left`` are processes, and files and memory that stay
    open."""

    rounds: int = 0
    frames: int = 0
    killed: int = 0
    lost_frames: int = 0
    differing_bits: int = 0
    left: list[str] = field(default_factory=list)
    rss_mib: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """Of resident memory since the first rounds, as a share."""
        later = self.rss_mib[FIRST_ROUNDS - 1 :]
        return later[-1] / later[0] - 1 if len(later) > 1 else 0.0

    @property
    def good(self) -> bool:
        wrong = self.lost_frames or self.differing_bits or self.left
        return not wrong and self.growth <= MOST_GROWTH


def differing_bits(one: bytes, other: bytes) -> int:
    """Bytes that only one has count whole."""
    size = min(len(one), len(other))
    changed = np.frombuffer(one[:size], np.uint8) ^ np.frombuffer(other[:size], np.uint8)
    return int(np.unpackbits(changed).sum()) + 8 * abs(len(one) - len(other))


def lost_frames(results: list[int], delivered: int) -> int:
    """Of the frames 0, 1, ... that count as delivered those that did not come, or not in turn."""
    return sum(n >= len(results) or results[n] != n for n in range(delivered))


def programs(folder: Path) -> bytes:
    """Compiles a network, writes and reads its program, and runs it in threads; the first one's
    answers, to which those of others that differ are added."""
    program, _ = networks.compiled.__wrapped__(networks.machine())
    program.to_file(folder / "network.npu")
    session = Session(Program.from_file(folder / "network.npu"))
    _, samples = networks.network()

    def answers(_: int) -> bytes:
        return b"".join(one.tobytes() for one in session.run([samples, samples[::-1]]))

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(answers, range(THREADS)))
    return found[0] + b"".join(one for one in found if one != found[0])


def models(folder: Path) -> bytes:
    """The command line's programs of a model."""
    from tvm_npu.cli import main

    target = folder / "programs"
    code = main(["compile", str(MODEL), "-o", str(target)])
    if code:
        raise SystemExit(f"compiling {MODEL} ends with {code}")
    return b"".join(path.read_bytes() for path in sorted(target.glob("*.npu")))


def stream(rng: random.Random, findings: Findings) -> None:
    """A pipeline of three stages, one of which may be killed somewhere."""
    kills = rng.random() < 0.7
    at, parts = rng.randrange(FRAMES), []
    for n in range(3):
        seed = rng.randrange(99)
        parts.append(
            make("affine", n, last=n == 2, offset=n, delay_s=0.001, jitter_seed=seed)
        )
    results: list[int] = []
    with Pipeline(Deployment(tuple(parts), (0, 1, 2)), places(3)) as pipeline:
        try:
            for result in pipeline.run(frame(n) for n in range(FRAMES)):
                results.append(int(result.outputs["y"][0]) - 3)
                if kills and len(results) == at:
                    os.kill(rng.choice(list(pipeline.pids.values())), signal.SIGKILL)
                    findings.killed += 1
            delivered = FRAMES
        except StageDied as error:
            delivered = error.delivered
    findings.frames += len(results)
    findings.lost_frames += lost_frames(results, delivered)


def children() -> list[str]:
    """Processes that this one has started, but for helpers of Python's own."""
    found = []
    for process in psutil.Process().children():
        try:
            command = " ".join(process.cmdline())
        except psutil.ZombieProcess:
            command = "that has ended, and nobody waited for"
        except psutil.NoSuchProcess:
            continue
        if "resource_tracker" not in command:
            shown = os.fsencode(command).decode("utf-8", "replace")
            found.append(f"process {process.pid} {shown}")
    return found


def resident_mib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def soak(
    seconds: float, works: tuple[Callable[[Path], bytes], ...], seed: int
) -> Iterator[Findings]:
    """The findings after each round, at least one; those of the last one have what is left."""
    rng, findings = random.Random(seed), Findings()
    end, first = time.monotonic() + seconds, dict[str, bytes]()
    before = set(children())
    while not findings.rounds or time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            for work in works:
                found = work(Path(name))
                wanted = first.setdefault(work.__name__, found)
                findings.differing_bits += differing_bits(found, wanted)
        stream(rng, findings)
        findings.rounds += 1
        findings.rss_mib.append(round(resident_mib(), 1))
        findings.descriptors.append(len(os.listdir("/proc/self/fd")))
        findings.left = sorted(set(children()) - before)
        more = findings.descriptors[-1] - findings.descriptors[:FIRST_ROUNDS][-1]
        findings.left += [f"{more} more descriptors than in the first rounds"] if more > 0 else []
        yield findings


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="(default: 60)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument(
        "--json", type=Path, help="write the findings to a file, over what is there"
    )
    args = parser.parse_args(argv)
    findings = Findings()
    for findings in soak(60 * args.minutes, (programs, models), args.seed):
        print(f"round {findings.rounds}: {findings.rss_mib[-1]:.1f} MiB, {findings.frames} frames, "
              f"{findings.killed} kills, {findings.lost_frames} lost, {findings.differing_bits} "
              f"bits differ, {len(findings.left)} left", file=sys.stderr, flush=True)  # fmt: skip
    said = asdict(findings) | {"seed": args.seed, "growth": findings.growth}
    if args.json is not None:
        args.json.write_text(json.dumps(said, indent=1) + "\n", "utf-8")
    print("good" if findings.good else f"bad: {json.dumps(said)}")
    return 0 if findings.good else 1


if __name__ == "__main__":
    sys.exit(main())
