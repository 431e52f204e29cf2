"""Time of a TLE with one buffer whose TLTs share tiles, in closed form.

In a step its engine loads, its TLTs multiply, and at the end of the channels they store, all of
them in turn:

    D + M

D are all transfers, one after another, and M what one MAC unit works. But where tiles come one
after another, TLTs that have theirs multiply while others' still come, and store first:

    D + M - min(X, E, M / n)

with n channel steps a tile, as only those with stores behind them gain: X is what comes behind the
first TLT's tiles in such steps, E the stores (and residual tiles) of all TLTs but the last to begin.

IN tiles of all places come before W tiles of all filter parts. So of P places and q filter parts

    W is new     X = (q - 1) / q of W, E = (q - 1) / q of the stores
    only IN is   X = (P - 1) / P of IN, E = (P - 1) / P of the stores

With one place TLTs ask for W before all but the first, or the first two where IN comes over the
ring, which fetch code meanwhile: X = 1 / q or 2 / q of W. Where W comes over the ring, too, nothing
is left of it. Under WS, W is new once a turn over the filters, long before the stores if n > 1; with
``keeps_in`` it always is. Under IS and OS with IN for every step, nothing is taken to be gained.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan


@dataclass(frozen=True)
class Gains:
    """Shares of all IN loads and W loads that others multiply under, of all stores that go on
    while others multiply, and of M that can have anything beside it."""

    inputs: float = 0.0
    weights: float = 0.0
    stores: float = 0.0
    macs: float = 0.0


NO_GAINS = Gains()


def gains_of(plan: ConvPlan, parts: int, tlt_places: int, channel_steps: int, turns: int) -> Gains:
    """Of a TLE with ``parts`` filter parts and ``tlt_places`` places of its TLTs that have any
    work, of tiles of ``channel_steps``, ``turns`` of them over its rows and columns."""
    if plan.schedule != "WS" and not plan.keeps_in:
        return NO_GAINS
    by_place, by_part = 1 - 1 / tlt_places, 1 - 1 / parts
    late = by_part
    if tlt_places == 1:
        late = 0.0 if plan.ring_weights else min((2 if plan.ring_in else 1) / parts, by_part)
    if plan.keeps_in:
        return Gains(0.0, late, by_part, 1.0)
    if channel_steps > 1:
        return Gains(by_place / channel_steps, 0.0, by_place, 1 / channel_steps)
    new = 1 / turns
    stores = new * by_part + (1 - new) * by_place
    return Gains((1 - new) * by_place, late, stores, 1.0)


@dataclass(frozen=True)
class TurnTimes:
    """Of a TLE, in cycles of its engine, stream by stream (``stores`` with residual tiles), and of
    the MAC unit of one TLT."""

    inputs: float
    weights: float
    biases: float
    stores: float
    macs: float

    @property
    def transfers(self) -> float:
        return self.inputs + self.weights + self.biases + self.stores


def in_turn_cycles(times: TurnTimes, gains: Gains) -> float:
    """Time of the TLE."""
    early = gains.inputs * times.inputs + gains.weights * times.weights
    gain = min(early, gains.stores * times.stores, gains.macs * times.macs)
    return times.transfers + times.macs - gain
