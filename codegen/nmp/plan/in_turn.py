"""Time of a TLE with one buffer whose TLTs share tiles, in closed form.

In a step its engine loads, its TLTs multiply, and at the end of the channels they store, all of
them in turn:

    D + M

D are all transfers, one after another, and M what one MAC unit works. But where tiles come one
after another, TLTs that have theirs multiply while others' still come, and store first. In a step
with stores behind it, that takes off

    min(X, E, m)

X is what comes behind the first TLT's tiles, E the stores (and residual tiles) of all TLTs but the
last to begin, m the products of the step. IN tiles of all places come before W tiles of all filter
parts. So of P places and q filter parts of a TLE

    W is new     X = (q - 1) / q of W, E = (q - 1) / q of the stores
    only IN is   X = (P - 1) / P of IN, E = (P - 1) / P of the stores

but half of this X where IN comes over the ring, as TLEs load their parts of it in any order of the
places.

With one place TLTs ask for W before all but the first, or the first two where IN comes over the
ring, which fetch code meanwhile: X = 1 / q or 2 / q of W. Where W comes over the ring, too, nothing
is left of it. Under WS, W is new once a turn over the filters, long before the stores if a tile has
several channel steps; with ``keeps_in`` it always is.

Under IS and OS with IN for every step, TLTs in one place ask for the next step's W when they are
through with their own, in front of the IN for which all wait. If a tile has several steps, each
gains X = 1 / q of W, under whatever comes next, but no more than a quarter of m, by simulation. In
several places, or with a stream over the ring, all wait first, and nothing is taken to be gained.
"""

from __future__ import annotations

from typing import NamedTuple

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan


class Gain(NamedTuple):
    """Of the steps of one kind that end with stores: shares of all loads of IN and of W (X), of all
    stores and of W (E) and of all products (m)."""

    inputs: float
    weights: float
    stores: float
    macs: float
    next_weights: float = 0.0


def gains_of(
    plan: ConvPlan, parts: int, tlt_places: int, channel_steps: int, turns: int
) -> tuple[Gain, ...]:
    """Of a TLE with ``parts`` filter parts and ``tlt_places`` places of its TLTs that have any
    work, of tiles of ``channel_steps``, ``turns`` of them over its rows and columns."""
    by_place, by_part = 1 - 1 / tlt_places, 1 - 1 / parts
    if plan.schedule != "WS" and not plan.keeps_in:
        all_wait = plan.tlt_rows * plan.tlt_columns > 1 or plan.ring_weights or plan.ring_in
        if all_wait or channel_steps == 1:
            return ()
        return (Gain(0.0, min(1 / parts, by_part), by_part, 0.25, by_part),)
    early, late = by_place / (1 + plan.ring_in), by_part
    if tlt_places == 1:
        late = 0.0 if plan.ring_weights else min((2 if plan.ring_in else 1) / parts, by_part)
    if plan.keeps_in:
        return (Gain(0.0, late, by_part, 1.0),)
    if channel_steps > 1:
        return (Gain(early / channel_steps, 0.0, by_place, 1 / channel_steps),)
    new, old = 1 / turns, 1 - 1 / turns
    return Gain(0.0, late, new * by_part, new), Gain(old * early, 0.0, old * by_place, old)


class TurnTimes(NamedTuple):
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


def in_turn_cycles(times: TurnTimes, gains: tuple[Gain, ...]) -> float:
    """Time of the TLE."""
    total = times.transfers + times.macs
    for gain in gains:
        early = gain.inputs * times.inputs + gain.weights * times.weights
        behind = gain.stores * times.stores + gain.next_weights * times.weights
        total -= min(early, behind, gain.macs * times.macs)
    return total
