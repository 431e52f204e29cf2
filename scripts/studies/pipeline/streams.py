"""Two-stage streams of a network under a throttle: all cuts, the tuned one, stock TVM; then the
throttle moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from studies.pipeline.errors import BenchError
from studies.pipeline.layer_parallel import FREE, PINNED, LayerParallel
from studies.pipeline.measuring import (
    WARM_UP,
    References,
    interleaved,
    run_some,
    slowest_stage_s,
    throughput,
)
from studies.pipeline.network import Frame, Network, core_places, shown
from studies.pipeline.rows import CutRow, RetuneRow, StreamRow
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.tuner import OnlineTuner, TunerOptions, Tuning
from tvm_npu.runtime.pipeline import Pipeline, Result
from tvm_npu.runtime.pipeline.throttle import Throttle

DUTY = 1 / 3
FINALISTS = 4
"""Cuts of the exhaustive pass that are measured again, at length, beside the tuned one."""
LIMIT_FRAMES = 600
"""A tuning that takes longer has failed."""
STEADY_FRAMES = 25
"""Of the stream before the throttle moves, and after the tuner has finished."""
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Effort:
    """``pass_frames`` of every cut once; ``round_s`` of every finalist in each of ``rounds``."""

    pass_frames: int = 5
    rounds: int = 4
    round_s: float = 1.2


@dataclass(frozen=True)
class Tuned:
    """A stream that was tuned: its results, the tunings before and after the throttle moved (at
    least one each), and the number of the first frame that went in after that."""

    results: list[Result]
    before: tuple[Tuning, ...]
    after: tuple[Tuning, ...]
    moved: int


@dataclass
class Stream:
    """A network's pipeline on two cores under a throttle; ``slow`` is the index of the slow one."""

    network: Network
    cores: tuple[int, int]
    throttle: Throttle
    effort: Effort
    say: Callable[[str], None]
    slow: int = 1
    rows: list[CutRow] = field(default_factory=list)

    def measure(self) -> tuple[StreamRow, RetuneRow]:
        """Compiles all cuts, measures each once, tunes, moves the throttle; then the finals."""
        network = self.network
        for configuration in network.two_stages():
            self.say(f"compiling {shown(configuration, self.cores)}")
            network.deployment(configuration)
        with Pipeline(network.serial(0), core_places(self.cores), timeout_s=TIMEOUT_S) as pipeline:
            references = References(network, pipeline)
            self._move_throttle(1)
            rates = self._every_cut(pipeline)
            tuned = self._tuned_stream(pipeline)
            bits = all(references.equal(n, one.outputs) for n, one in enumerate(tuned.results))
            retune = self._retune_row(pipeline, rates, tuned, bits)
            self._move_throttle(1)
            stream = self._stream_row(pipeline, rates, tuned.before, bits)
        return stream, retune

    def _move_throttle(self, slow: int) -> None:
        self.throttle.set(self.cores[1 - slow], 1.0)
        self.throttle.set(self.cores[slow], DUTY)
        self.slow = slow

    def _every_cut(self, pipeline: Pipeline) -> dict[Configuration, float]:
        rates = {}
        for configuration in self.network.two_stages():
            name = shown(configuration, self.cores)
            self.say(name)
            results = run_some(self.network, pipeline, configuration, self.effort.pass_frames)
            times = [one.times for one in results]
            rates[configuration] = throughput(times)
            self.rows.append(
                CutRow("cut", self.network.name, name, rates[configuration],
                       slowest_stage_s(times))
            )  # fmt: skip
        return rates

    def _tuned_stream(self, pipeline: Pipeline) -> Tuned:
        """One stream from cold: tuned, then the throttle moves, tuned again. The throttle moves,
        and the stream ends, when nothing has been tuned for a while."""
        network = self.network
        self.say("tuning while frames flow")
        half = len(network.chain) // 2
        start = Configuration((half, len(network.chain) - half), (0, 1))
        pipeline.redeploy(network.deployment(start))
        first = pipeline.put_count
        tuner = OnlineTuner(
            pipeline, network.chain, _two_alike(self.cores), network.deployment, TunerOptions()
        )
        moved: int | None = None
        tunings_before = 0

        def source() -> Iterator[Frame]:
            nonlocal moved, tunings_before
            for number in range(LIMIT_FRAMES):
                tunings = tuner.history
                steady = bool(tunings) and (
                    first + number >= max(tunings[-1].tuned, tunings[-1].finished) + STEADY_FRAMES
                )
                if steady and moved is None:
                    self._move_throttle(0)
                    moved, tunings_before = first + number, len(tunings)
                elif steady and len(tunings) > tunings_before:
                    return
                yield network.frame(number)

        with tuner:
            results = list(pipeline.run(source()))
        before, after = tuner.history[:tunings_before], tuner.history[tunings_before:]
        if moved is None or not after:
            raise BenchError(
                f"{network.name}: the throttle {'did not move' if moved is None else 'moved'}, "
                f"then {len(after)} tunings were finished within {LIMIT_FRAMES} frames"
            )
        return Tuned(results, before, after, moved)

    def _finals(
        self, pipeline: Pipeline, tuned: Configuration, rates: dict[Configuration, float]
    ) -> dict[Configuration, Callable[[], float]]:
        """The fastest of the pass and the tuned one, at length."""
        ranked = sorted(rates, key=lambda one: -rates[one])[:FINALISTS]
        chosen = dict.fromkeys([*ranked, tuned])
        return {one: partial(self._rate, pipeline, one, rates[one]) for one in chosen}

    def _rate(self, pipeline: Pipeline, configuration: Configuration, expected: float) -> float:
        frames = max(8, round(self.effort.round_s * expected))
        results = run_some(self.network, pipeline, configuration, frames)
        return throughput([one.times for one in results])

    def _stream_row(
        self,
        pipeline: Pipeline,
        rates: dict[Configuration, float],
        tunings: tuple[Tuning, ...],
        bits: bool,
    ) -> StreamRow:
        network, tuning = self.network, tunings[-1]
        self.say("finals")
        finals = self._finals(pipeline, tuning.best, rates)
        alone = Configuration((len(network.chain),), (1 - self.slow,))
        guess = max(rates.values()) * 0.75
        assert network.stock is not None
        with (
            LayerParallel(network.stock, self.cores, FREE) as free,
            LayerParallel(network.stock, self.cores, PINNED) as bound,
        ):
            frames = max(8, round(self.effort.round_s * guess / 2))
            medians = interleaved(
                {
                    **{str(one): call for one, call in finals.items()},
                    FREE: lambda: free.throughput(frames),
                    PINNED: lambda: bound.throughput(frames),
                    "alone": partial(self._rate, pipeline, alone, guess),
                },
                self.effort.rounds,
            )
        best = max(finals, key=lambda one: medians[str(one)])
        parallel = max(medians[FREE], medians[PINNED])
        tuned = medians[str(tuning.best)]
        return StreamRow(
            "stream",
            network.name,
            layers=len(network.chain),
            configurations=len(rates),
            slow_core=self.cores[self.slow],
            duty=DUTY,
            best=shown(best, self.cores),
            best_throughput=medians[str(best)],
            tuned=shown(tuning.best, self.cores),
            tuned_throughput=tuned,
            tuned_share=tuned / medians[str(best)],
            trials=sum(len(one.trials) for one in tunings),
            tuning_frames=tuning.tuned - tunings[0].noticed - 1,
            layer_parallel_throughput=medians[FREE],
            layer_parallel_bound_throughput=medians[PINNED],
            fast_core_throughput=medians["alone"],
            over_layer_parallel=tuned / parallel,
            bits_equal=bits,
        )

    def _retune_row(
        self,
        pipeline: Pipeline,
        rates: dict[Configuration, float],
        tuned: Tuned,
        bits: bool,
    ) -> RetuneRow:
        """The cores are alike: cuts for the moved throttle are those of the pass with places
        exchanged."""
        network, moved = self.network, tuned.moved
        before, after = tuned.before[-1], tuned.after[-1]
        self.say("finals with the throttle moved")
        mirrored = {
            Configuration(one.stages, tuple(1 - place for place in one.places)): rate
            for one, rate in rates.items()
        }
        finals = self._finals(pipeline, after.best, mirrored)
        finals[before.best] = partial(self._rate, pipeline, before.best, rates[before.best] / 2)
        medians = interleaved({str(one): call for one, call in finals.items()}, self.effort.rounds)
        best = max(finals, key=lambda one: medians[str(one)])
        times = [one.times for one in tuned.results]
        steady = [one for one in times if before.finished + WARM_UP <= one.frame < moved]
        return RetuneRow(
            "retune",
            network.name,
            noticed_frames=tuned.after[0].noticed + 1 - moved,
            retuned_frames=after.tuned - moved,
            finished_frames=after.finished + 1 - moved,
            trials=sum(len(one.trials) for one in tuned.after),
            before=shown(before.best, self.cores),
            after=shown(after.best, self.cores),
            before_throughput=throughput(steady),
            stuck_throughput=medians[str(before.best)],
            after_throughput=medians[str(after.best)],
            best=shown(best, self.cores),
            best_throughput=medians[str(best)],
            after_share=medians[str(after.best)] / medians[str(best)],
            lost=times[-1].frame - times[0].frame + 1 - len(times),
            bits_equal=bits,
        )


def _two_alike(cores: tuple[int, int]) -> Platform:
    """What the search is told: nothing of the throttle."""
    places = [
        {"name": place.name, "kind": "real", "core_ids": list(place.cores)}
        for place in core_places(cores)
    ]
    return platform_from_dict({"name": "two-cores", "places": places})
