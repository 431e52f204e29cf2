"""What the TSO paper reports, copied from it; nothing here is computed or measured.

Source: R. Sousa, M. Pereira, Y. Kwon, T. Kim, N. Jung, C. S. Kim, M. Frank, G. Araujo: Tensor
Slicing and Optimization for Multicore NPUs. Times are those of an NMP board with 4 TLEs of 8 TLTs
at 1 GHz, 16-bit fixed point. The YOLO row of Table I is left out: the structure of that network
is not published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MACHINE = "nmp-4x8-paper"


@dataclass(frozen=True)
class Column:
    """A column of Table I: its head, the planner that stands for it, and what it varies."""

    head: str
    planner: str
    group: Literal["model", "TLE slicing", "TLT schedule"]


BURST = Column("burst", "tso", "model")
NO_BURST = Column("no burst", "tso-noburst", "model")
COLUMNS: tuple[Column, ...] = (
    BURST,
    NO_BURST,
    Column("KS", "fixed-ks", "TLE slicing"),
    Column("KS&OFM", "fixed-ks-ofm", "TLE slicing"),
    Column("OFM", "fixed-ofm", "TLE slicing"),
    Column("IS", "fixed-is", "TLT schedule"),
    Column("OS", "fixed-os", "TLT schedule"),
    Column("WS", "fixed-ws", "TLT schedule"),
)

_TABLE_I_US: dict[str, tuple[int, ...]] = {
    "inception_v3": (72686, 88478, 82370, 81367, 91408, 73706, 93731, 101641),
    "lenet": (199, 231, 202, 224, 231, 199, 233, 228),
    "mobilenet_v2": (14030, 15470, 17765, 16696, 17571, 14084, 17387, 15155),
    "resnet50": (55927, 62375, 62077, 63118, 78844, 59714, 71905, 77535),
    "squeezenet1.0": (12504, 13713, 16579, 14134, 12993, 12908, 15840, 13452),
}

TRANSFER_SHARE: dict[str, float] = {"inception_v3": 0.5183, "lenet": 0.8380}
"""LOAD and STORE as a share of the no-burst time (text on Figure 9): the lowest and the highest;
the others are only drawn."""


def published_us(model: str, column: Column) -> float:
    """One cell of Table I, microseconds."""
    return float(_TABLE_I_US[model][COLUMNS.index(column)])
