"""Compiled simulation of frames that flow through machines with bounded queues."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import entry

POLICIES = ("turns", "shares", "free")


@entry
def run_fleet(stage_s, firsts, rates, policy, factors, slots):
    """When each frame was given to a machine, when its result left in order, and which machine
    served it. ``firsts``: the first stage of each machine in ``stage_s``; ``factors`` [frames,
    stages] of the stages' times."""
    machines = rates.shape[0]
    frames = factors.shape[0]
    stages = stage_s.shape[0]
    # When a stage had given on each of its last frames: then its slot in the queue before is free.
    gone = np.zeros((stages, slots))
    counts = np.zeros(machines, np.int64)
    given = np.zeros(frames)
    left = np.zeros(frames)
    served = np.zeros(frames, np.int64)
    now = 0.0
    for frame in range(frames):
        chosen = 0
        best = np.inf
        for machine in range(machines):
            if policy == 0:
                value = float((machine - frame) % machines)
            elif policy == 1:
                value = (counts[machine] + 1) / rates[machine]
            else:
                room = gone[firsts[machine], counts[machine] % slots]
                value = max(room, now)
            if value < best or (value == best and rates[machine] > rates[chosen]):
                best = value
                chosen = machine
        first = firsts[chosen]
        end = firsts[chosen + 1]
        slot = counts[chosen] % slots
        last = (counts[chosen] - 1) % slots
        now = max(now, gone[first, slot])
        at = now
        given[frame] = now
        for stage in range(first, end):
            begin = max(at, gone[stage, last])
            at = begin + stage_s[stage] * factors[frame, stage - first]
            if stage + 1 < end:  # waits for the slot of an earlier frame behind it
                at = max(at, gone[stage + 1, slot])
            gone[stage, slot] = at
        counts[chosen] += 1
        served[frame] = chosen
        left[frame] = at if frame == 0 else max(at, left[frame - 1])
    return given, left, served
