"""What the two papers print: Pipe-Search (Computing Frontiers 2021) and Shisha (2022)."""

from __future__ import annotations

from dataclasses import dataclass

PIPE_TRIALS, EXHAUSTIVE_TRIALS = 38, 1970
"""Pipe-Search, Table 3: VGG16 on four cores of the Jetson TX2 (section 6.1 says 34 in its text)."""
BANDS = (1.0, 1.5, 2.0, 5.0)
"""Table 4, seconds of the slowest stage; its best are about 1 s, so that here they are multiples of
the best."""
PIPE_BANDS = (79.0, 21.0, 0.0)
EXHAUSTIVE_BANDS = (11.0, 18.3, 70.7)
HINT_THROUGHPUT = {"with hints": 1.2, "without hints": 0.6, "random": 0.9}
"""Table 5, frames a second; the random walk ended at 0.9."""


@dataclass(frozen=True)
class Setting:
    """Table 6, VGG16: the best cut that Pipe-Search found, its place among the cuts of as many
    stages in the order of their coefficient of variation, and its frames a second."""

    number: int
    stages: tuple[int, ...]
    rank: int
    throughput: float


SETTINGS = (
    Setting(1, (6, 5, 10), 1, 1.22),
    Setting(2, (5, 16), 7, 0.36),
    Setting(3, (9, 12), 2, 0.21),
    Setting(4, (7, 4, 10), 3, 0.17),
)


@dataclass(frozen=True)
class SynthOptimum:
    """Table 7: an optimum of a synthetic network under a governor setting. The head of its last
    column says setting 2, the text 3, which Figure 3 agrees with."""

    network: str
    setting: int
    stages: tuple[int, ...]
    rank: int
    variation: float


SYNTH_WEIGHTS: dict[str, tuple[int, ...]] = {
    "synth1": (1, 4, 8, 4, 8, 8, 4),
    "synth2": (1, 9, 4, 8, 5, 4, 8, 5, 7, 1, 1, 1, 4, 8, 22),
    "synth3": (1, 9, 4, 8, 20, 2, 22, 3, 4, 8, 7, 11, 11),
}
SYNTH_SEEDS: dict[str, tuple[tuple[int, ...], float]] = {
    "synth1": ((3, 2, 2), 3.8),
    "synth2": ((8, 7), 0.0),
    "synth3": ((4, 2, 1, 4, 2), 0.0),
}
SYNTH_OPTIMA = (
    SynthOptimum("synth1", 1, (4, 1, 1, 1), 6, 51.4),
    SynthOptimum("synth1", 3, (5, 1, 1), 10, 73.8),
    SynthOptimum("synth2", 1, (4, 7, 4), 8, 18.5),
    SynthOptimum("synth2", 3, (8, 6, 1), 22, 35.0),
    SynthOptimum("synth3", 1, (3, 1, 2, 1, 4, 2), 9, 29.8),
    SynthOptimum("synth3", 3, (7, 4, 2), 22, 56.5),
)

SHISHA_TRIALS = (25, 35)
SHISHA_SHARE = {"synthnet": 2.5, "resnet50": 0.1, "yolov3": 0.1}
"""Section 7.3: percent of the space that Shisha explored on four places."""
SHISHA_SHARE_8, PIPE_SHARE_8 = 0.12, 2.03
"""Section 7.2: the same for SynthNet on eight places, Shisha and Pipe-Search."""
SPEED_UP = 35.0
"""Convergence of Shisha over that of the other searches, on average."""
SYNTHNET_THROUGHPUT = 0.94
"""Figure 4, SynthNet on eight places."""
RANDOM_SEED_TIME = {"resnet50": 1.35}
RANDOM_SEED_GAIN = {"yolov3": 1.16}
"""Figure 6: convergence time from random seeds over that from Shisha's; throughput of Shisha's
solution over theirs."""
