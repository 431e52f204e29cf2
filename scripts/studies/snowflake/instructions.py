"""Table 2 out of what the simulator counted: shares of modes, lengths of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.snowflake.measuring import LayerCost, Measured


@dataclass(frozen=True)
class Lengths:
    """As a row of Table 2: percent of the traces of kernels in mode INDP and COOP; mean units of
    64 bytes of a load, words of such a trace, units of a store."""

    indp: float
    coop: float
    load: float
    trace: float
    store: float


def lengths_of(one: Measured) -> Lengths:
    """Without linear layers, as the times. Vector operations in which no kernel takes part are not
    counted as traces."""
    layers = one.counted
    indp, coop = (_total(layers, mode) for mode in ("indp", "coop"))
    traces = indp + coop
    words = sum(
        layer.profile.trace_words[mode] for layer in layers for mode in ("indp", "coop")
    )
    return Lengths(
        _ratio(100 * indp, traces), _ratio(100 * coop, traces),
        _ratio(sum(x.profile.load_units for x in layers), sum(x.profile.loads for x in layers)),
        _ratio(words, traces),
        _ratio(sum(x.profile.store_units for x in layers), sum(x.profile.stores for x in layers)),
    )  # fmt: skip


def _total(layers: Sequence[LayerCost], mode: str) -> int:
    return sum(layer.profile.traces[mode] for layer in layers)


def _ratio(total: float, count: float) -> float:
    return total / count if count else 0.0
