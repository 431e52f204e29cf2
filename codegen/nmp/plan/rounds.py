"""Time of a TLE whose TLTs share nothing, in closed form: one buffer, but one works while others
load.

Each of its ``tlts`` goes through ``rounds``: it loads (l cycles of the TLE's engine), multiplies
(m) and stores (s), and asks for the next load as soon as it has asked for that store. The engine
serves the TLTs one transfer after another; the MAC units are their own. With n TLTs, k rounds,
``all`` transfers of the engine one after another (D), and the biases that it loads ``before`` the
first round (b), the time is, n = 1:

    D + k m

k = 1, where either the first TLT's round lies in front of all other transfers or the last one's
behind them:

    max(D, b + m + max(l + n s, n l + s))

and otherwise

    max(D + max(0, m - (n - 1) l),
        b + max(n l, l + m) + n (l + s) + (k - 2) max(n (l + s), l + s + m) + m + s)

l, m and s are averages of the layer's rounds: what weights that stay take in the first of them is a
part of all. The time is never less than all transfers, and never
less than all MACs and a TLT's own transfers, a share 1 / n of all.
"""

from __future__ import annotations

from typing import NamedTuple


class RoundTimes(NamedTuple):
    """Of a TLE, in cycles of its engine (the first four; ``all`` may be less than the sum of the
    other three, where the DRAM bounds some of them) and of the MAC unit of one TLT, in all its
    ``rounds``."""

    all: float
    before: float
    loads: float
    stores: float
    macs: float
    tlts: int
    rounds: int


def rounds_cycles(times: RoundTimes) -> float:
    """Time of the TLE."""
    n, k = times.tlts, times.rounds
    if n == 1:
        return times.all + times.macs
    load, store, mac = times.loads / (n * k), times.stores / (n * k), times.macs / k
    if k == 1:
        own = times.before + mac + max(load + n * store, n * load + store)
        return max(times.all, own)
    first = max(n * load, load + mac)
    middle = max(n * (load + store), load + store + mac)
    own = times.before + first + n * (load + store) + (k - 2) * middle + mac + store
    return max(times.all + max(0.0, mac - (n - 1) * load), own)
