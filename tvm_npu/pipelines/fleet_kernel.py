"""Compiled simulation of frames that flow through machines with bounded queues."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device, entry

POLICIES = ("turns", "shares", "free")
WAIT, INPUT, BEGIN, END = range(4)
"""Columns of `run_line`'s times: a stage is done with the frame before, has this one, has room for
its result, is done."""


@device
def _pass(stage_s, first, end, now, factors, gone, last, slot, marks):
    """Sends a frame that was given at ``now`` through stages ``first`` to ``end``; when it leaves.
    ``gone`` [stages, slots]: when a stage was done with each of its last frames, which frees their
    slots in the queue before it. ``marks`` [stages, 4]: `WAIT` to `END`."""
    at = now
    for stage in range(first, end):
        marks[stage, WAIT] = gone[stage, last]
        at = max(at, gone[stage, last])
        marks[stage, INPUT] = at
        if stage + 1 < end:  # computes into the slot of an earlier frame behind it
            at = max(at, gone[stage + 1, slot])
        marks[stage, BEGIN] = at
        at += stage_s[stage] * factors[stage - first]
        marks[stage, END] = at
        gone[stage, slot] = at
    return at


@entry
def run_line(stage_s, factors, slots):
    """When each frame was given to the first stage, and ``times`` [frames, stages, 4]: `WAIT` to
    `END`. ``factors`` [frames, stages] of the stages' times."""
    frames, stages = factors.shape
    gone = np.zeros((stages, slots))
    given = np.zeros(frames)
    times = np.zeros((frames, stages, 4))
    for frame in range(frames):
        slot = frame % slots
        given[frame] = gone[0, slot]
        _pass(
            stage_s, 0, stages, given[frame], factors[frame], gone, (frame - 1) % slots, slot,
            times[frame],
        )  # fmt: skip
    return given, times


@entry
def run_fleet(stage_s, firsts, rates, policy, factors, slots):
    """When each frame was given to a machine, when its result left in order, and which machine
    served it. ``firsts``: the first stage of each machine in ``stage_s``; ``factors`` [frames,
    stages] of the stages' times."""
    machines = rates.shape[0]
    frames = factors.shape[0]
    stages = stage_s.shape[0]
    gone = np.zeros((stages, slots))
    marks = np.zeros((stages, 4))
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
        given[frame] = now
        at = _pass(stage_s, first, end, now, factors[frame], gone, last, slot, marks)
        counts[chosen] += 1
        served[frame] = chosen
        left[frame] = at if frame == 0 else max(at, left[frame - 1])
    return given, left, served
