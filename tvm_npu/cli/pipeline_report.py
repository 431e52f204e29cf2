"""What ``tvm-npu pipeline`` tells: a table of stages, a few sentences, the same as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm_npu.cli.pipeline_stream import SimulatedFrames, stage_json
from tvm_npu.cli.tables import Column, print_tables
from tvm_npu.cli.terminal import Terminal
from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search import SearchResult, Trial, space_size
from tvm_npu.pipelines.search.space import size_text
from tvm_npu.pipelines.stream import StreamReport
from tvm_npu.runtime.pipeline.statistics import PipelineStatistics


def print_report(
    chain: LayerChain, platform: Platform, search: str, report: StreamReport, terminal: Terminal
) -> None:
    """Prints what a measured stream cost."""
    statistics = report.statistics
    _print_stages(
        chain, platform, report.tuning.best, _stream_columns(statistics, "busy\nms", 2), terminal
    )
    latency = statistics.latency_s
    trials = report.tuning.trials
    out = terminal.out
    out.print(
        f"{statistics.frames:,} frames, {statistics.throughput:.2f} a second; latency "
        f"{latency[50] * 1e3:.1f} ms (99 %: {latency[99] * 1e3:.1f} ms)",
        soft_wrap=True,
    )
    out.print(
        f"{search}: {_trials(len(trials), chain, platform)}, {report.tuning.search_s:.1f} s, while "
        f"{report.tuning_frames:,} frames flowed",
        soft_wrap=True,
    )
    out.print(
        f"all {statistics.frames + report.tuning_frames:,} results are in order and, to the bit, "
        "those of the serial model",
        soft_wrap=True,
    )


def _stream_columns(
    statistics: PipelineStatistics, busy: str, digits: int
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What frames that flowed cost each stage; ``busy`` heads the first column, milliseconds
    have ``digits`` behind the point."""
    stages = statistics.stages

    def ms(seconds: Iterable[float]) -> tuple[str, ...]:
        return tuple(f"{one * 1e3:.{digits}f}" for one in seconds)

    return (
        (busy, ms(one.busy_s for one in stages)),
        ("input\nwait ms", ms(one.input_wait_s for one in stages)),
        ("output\nwait ms", ms(one.output_wait_s for one in stages)),
        ("busy\n%", tuple(f"{one.utilization:.0%}"[:-1] for one in stages)),
        ("queue\nframes", tuple(f"{one.fill:.2f}" for one in stages)),
    )


def print_simulated(
    chain: LayerChain,
    platform: Platform,
    result: SearchResult,
    frames: SimulatedFrames | None,
    terminal: Terminal,
) -> None:
    """Prints what a search found on simulated places, and what ``frames`` took there."""
    times = result.best.times
    taken, busy = ("simulated\nms", "busy\n%")
    if frames is not None:
        taken, busy = ("on paper\nms", "on paper\n%")
    simulated = [
        (taken, tuple(f"{seconds * 1e3:.3f}" for seconds in times.seconds)),
        (busy, tuple(f"{s / times.bottleneck_s:.0%}"[:-1] for s in times.seconds)),
    ]
    if frames is not None:
        simulated += _stream_columns(frames.statistics, "simulated\nms", 3)
    _print_stages(chain, platform, result.best.configuration, simulated, terminal)
    out = terminal.out
    if frames is None:
        out.print(f"{times.throughput:.4g} frames a second, simulated", soft_wrap=True)
    else:
        for line in frames.sentences(times):
            out.print(line, soft_wrap=True)
    ended = "" if result.finished else "; the budget ended it"
    out.print(
        f"{result.search}: {_trials(len(result.trials), chain, platform)}, the best is number "
        f"{result.trials_to_best}{ended}",
        soft_wrap=True,
    )


def _trials(count: int, chain: LayerChain, platform: Platform) -> str:
    size = space_size(len(chain), platform)
    trials = "1 trial" if count == 1 else f"{count:,} trials"
    return f"{trials} of {size_text(size)} configurations"


def _print_stages(
    chain: LayerChain,
    platform: Platform,
    best: Configuration,
    times: Sequence[tuple[str, tuple[str, ...]]],
    terminal: Terminal,
) -> None:
    rows = _stages(chain, platform, best)
    total = sum(chain.weights) or 1.0
    columns = [
        Column("stage", tuple(str(n) for n in range(len(rows)))),
        Column("place", tuple(row["place"] for row in rows), name=True),
        *(Column(heading, cells) for heading, cells in times),
        Column("first layer", tuple(row["first_layer"] for row in rows), name=True),
        Column("last layer", tuple(row["last_layer"] for row in rows), name=True),
        Column("layers", tuple(str(row["layers"]) for row in rows)),
        Column("weight\n%", tuple(f"{100 * row['weight'] / total:.1f}" for row in rows)),
        Column("parameter\nKB", tuple(f"{row['parameter_bytes'] / 1e3:,.0f}" for row in rows)),
        Column("output\nKB", tuple(f"{row['output_bytes'] / 1e3:,.0f}" for row in rows)),
    ]
    print_tables(columns, terminal.out)


def _stages(chain: LayerChain, platform: Platform, best: Configuration) -> list[dict[str, Any]]:
    rows = []
    for (first, end), place in zip(best.ranges(), best.places, strict=True):
        layers = chain.layers[first:end]
        rows.append(
            {
                "place": platform.places[place].name,
                "first_layer": layers[0].name,
                "last_layer": layers[-1].name,
                "layers": len(layers),
                "weight": sum(layer.weight for layer in layers),
                "macs": sum(layer.macs for layer in layers),
                "parameter_bytes": sum(layer.parameter_bytes for layer in layers),
                "output_bytes": layers[-1].activation_bytes,
            }
        )
    return rows


def report_json(
    chain: LayerChain, platform: Platform, search: str, report: StreamReport
) -> dict[str, Any]:
    """Times in seconds, sizes in bytes."""
    statistics = report.statistics
    stages = [
        {**row, **stage_json(one), "cpu_s": one.cpu_s}
        for row, one in zip(
            _stages(chain, platform, report.tuning.best), statistics.stages, strict=True
        )
    ]
    return {
        **_common(chain, platform, search, report.tuning.trials),
        "simulated": False,
        "search_s": report.tuning.search_s,
        "tuning_frames": report.tuning_frames,
        "frames": statistics.frames,
        "throughput": statistics.throughput,
        "latency_s": {str(percentile): s for percentile, s in statistics.latency_s.items()},
        "bit_mismatches": 0,
        "stages": stages,
        "chain": _layers(chain),
    }


def simulated_json(
    chain: LayerChain, platform: Platform, result: SearchResult, frames: SimulatedFrames | None
) -> dict[str, Any]:
    """As `report_json`, without what only real frames have; ``stream``: what ``frames`` took."""
    times = result.best.times.seconds
    rows = _stages(chain, platform, result.best.configuration)
    return {
        **_common(chain, platform, result.search, result.trials),
        "simulated": True,
        "finished": result.finished,
        "throughput": result.best.times.throughput,
        "stages": [{**row, "busy_s": s} for row, s in zip(rows, times, strict=True)],
        **({} if frames is None else {"stream": frames.as_json()}),
        "chain": _layers(chain),
    }


def _common(
    chain: LayerChain, platform: Platform, search: str, trials: Sequence[Trial]
) -> dict[str, Any]:
    return {
        "model": chain.model,
        "platform": platform.name,
        "search": search,
        "layers": len(chain),
        "space": space_size(len(chain), platform),
        "trials": [
            {
                "stages": list(trial.configuration.stages),
                "places": [platform.places[p].name for p in trial.configuration.places],
                "stage_s": list(trial.times.seconds),
            }
            for trial in trials
        ],
    }


def _layers(chain: LayerChain) -> list[dict[str, Any]]:
    return [
        {
            "name": layer.name,
            "weight": layer.weight,
            "macs": layer.macs,
            "parameter_bytes": layer.parameter_bytes,
            "activation_bytes": layer.activation_bytes,
            "source": list(layer.source),
        }
        for layer in chain.layers
    ]
