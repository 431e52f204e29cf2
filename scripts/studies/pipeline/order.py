"""A long stream of a small network whose stages are exchanged all the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle

from studies.pipeline.measuring import References, throughput
from studies.pipeline.network import Frame, Network, core_places
from studies.pipeline.rows import OrderRow
from tvm_npu.runtime.pipeline import Pipeline
from tvm_npu.runtime.pipeline.statistics import latency_percentiles

FRAMES = 10_000
BETWEEN = 250
"""Frames from one exchange to the next."""


def measure_order(network: Network, cores: tuple[int, int], frames: int = FRAMES) -> OrderRow:
    """Walks through all cuts in both orders while ``frames`` pass; every result is compared."""
    plans = [network.deployment(configuration) for configuration in network.two_stages()]
    with Pipeline(network.serial(0), core_places(cores), timeout_s=60) as pipeline:
        references = References(network, pipeline)
        first = pipeline.put_count
        exchanges = 0

        def source() -> Iterator[Frame]:
            nonlocal exchanges
            following = cycle(plans)
            for number in range(frames):
                if number % BETWEEN == BETWEEN - 1:
                    pipeline.redeploy(next(following))
                    exchanges += 1
                yield network.frame(number)

        seen = []
        wrong = 0
        for result in pipeline.run(source()):
            seen.append(result.times)
            # By place in the stream of results, not by its own number: both must agree.
            wrong += not references.equal(len(seen) - 1, result.outputs)
    numbers = [one.frame - first for one in seen]
    counts = Counter(numbers)
    latency = latency_percentiles([one.latency_s for one in seen])
    return OrderRow(
        "order",
        network.name,
        frames=frames,
        exchanges=exchanges,
        lost=sum(number not in counts for number in range(frames)),
        repeated=sum(count - 1 for count in counts.values()),
        out_of_order=sum(a > b for a, b in zip(numbers, numbers[1:], strict=False)),
        wrong=wrong,
        throughput=throughput(seen),
        latency_p50_s=latency[50],
        latency_p99_s=latency[99],
    )
