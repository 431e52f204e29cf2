"""Stages over time as a Chrome trace, for chrome://tracing and Perfetto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tvm_npu.runtime.pipeline.times import FrameTimes


class Named(Protocol):
    """A stage, or a place."""

    @property
    def name(self) -> str: ...


class Staged(Protocol):
    """What a trace says of a deployment."""

    @property
    def stages(self) -> Sequence[Named]: ...

    @property
    def places(self) -> Sequence[int]: ...


def trace_events(
    times: Sequence[FrameTimes], deployments: Mapping[int, Staged], places: Sequence[Named]
) -> list[dict[str, Any]]:
    """Complete events ("X", microseconds from the first frame): a row a place with the frames it
    worked on and, in a second row, what it waited for; an instant for each new deployment."""
    if not times:
        return []
    origin_ns = min(one.put_ns for one in times)
    events: list[dict[str, Any]] = []
    used = sorted({place for one in times for place in deployments[one.epoch].places})
    for place in used:
        events.append(_named("process_name", place, 0, f"place {places[place].name}"))
        events.append(_named("thread_name", place, 0, "computes"))
        events.append(_named("thread_name", place, 1, "waits"))
    epoch: int | None = None
    for one in times:
        deployment = deployments[one.epoch]
        if one.epoch != epoch:
            epoch = one.epoch
            split = " | ".join(
                f"{stage.name} on {places[place].name}"
                for stage, place in zip(deployment.stages, deployment.places, strict=True)
            )
            events.append(
                {
                    "name": f"deployment {epoch}: {split}", "ph": "i", "s": "g",
                    "ts": (one.put_ns - origin_ns) / 1e3, "pid": used[0], "tid": 0,
                }
            )  # fmt: skip
        for stage, place, at in zip(deployment.stages, deployment.places, one.stages, strict=True):
            arguments = {"frame": one.frame, "stage": stage.name, "deployment": epoch}
            for row, name, begin_ns, end_ns in (
                (1, "waits for input", at.wait_ns, at.input_ns),
                (1, "waits for output", at.input_ns, at.begin_ns),
                (0, f"frame {one.frame}", at.begin_ns, at.end_ns),
            ):
                begin_ns = max(begin_ns, origin_ns)  # a stage waits before there is a frame
                if end_ns > begin_ns:
                    events.append(
                        {
                            "name": name, "cat": stage.name, "ph": "X",
                            "ts": (begin_ns - origin_ns) / 1e3, "dur": (end_ns - begin_ns) / 1e3,
                            "pid": place, "tid": row, "args": arguments,
                        }
                    )  # fmt: skip
    return events


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
