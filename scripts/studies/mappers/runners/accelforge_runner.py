"""Asks AccelForge one question; runs in an environment of its own: `accelforge_runner.py QUESTION
ANSWER`, both JSON files as `studies.mappers.question` says. Imports nothing of this project.

A layer is an einsum over filters, channels, rows, columns and the kernel's taps; a depthwise one
has channels alone. Each of the three memories on chip keeps the tensors of its kind. Several layers
are fused: each reads what the one before makes. They have one memory as large as the three, which
keeps all, and what lies between them need not leave it. Energy is 1 for a bit of the outer memory
and 0 for all else: the least energy is the least traffic. For the least time there are an array
spread over channels and filters, one product a PE and cycle, and the wire to the outer memory; a
layer takes as long as the busier of the two. They would only widen the search for least traffic,
which has neither.
"""

from __future__ import annotations

import json
import resource
import sys
from importlib import metadata
from typing import Any

BITS = 8
METRICS = {"bytes": ("ENERGY", "Total<SEP>energy"), "cycles": ("LATENCY", "Total<SEP>latency")}
"""What a goal makes least, by the names of options and of results."""
NONE = "Nothing.rank_variables"
"""The loop of a layer that is spread over PEs, where none is."""
WARM_UP = {
    "name": "warm", "filters": 4, "channels": 4, "groups": 1, "rows": 4, "columns": 4,
    "kernel": [1, 1], "stride": [1, 1],
}  # fmt: skip


def einsum(layer: dict[str, Any], at: int, data: str, result: str) -> dict[str, Any]:
    """One layer: reads ``data``, writes ``result``."""
    is_depthwise = layer["groups"] > 1
    channel, filters = f"c{at}", f"c{at}" if is_depthwise else f"m{at}"
    taps = [f"r{at}", f"s{at}"]
    places = [
        f"{stride} * {out} + {tap}" if stride > 1 else f"{out} + {tap}"
        for stride, out, tap in zip(layer["stride"], (f"p{at}", f"q{at}"), taps, strict=True)
    ]
    sizes = {filters: layer["filters"], f"p{at}": layer["rows"], f"q{at}": layer["columns"]}
    sizes |= dict(zip(taps, layer["kernel"], strict=True))
    sizes[channel] = layer["channels"]
    weights = list(dict.fromkeys((filters, channel, *taps)))
    if layer["kernel"] == [1, 1]:
        # A tap that is always 0 would only widen the search.
        weights = [name for name in weights if name not in taps]
        sizes = {name: size for name, size in sizes.items() if name not in taps}
        places = [place.rpartition(" + ")[0] for place in places]
    inputs = {f"H{data}": places[0], f"W{data}": places[1], f"C{data}": channel}
    outputs = {f"H{result}": f"p{at}", f"W{result}": f"q{at}", f"C{result}": filters}
    return {
        "name": f"L{at}",
        "tensor_accesses": [
            {"name": data, "projection": inputs},
            {"name": f"K{at}", "projection": {name.upper(): name for name in weights}},
            {"name": result, "projection": outputs, "output": True},
        ],
        "renames": {
            "input": data,
            "weight": f"K{at}",
            "output": result,
            "width": NONE if is_depthwise else channel,
            "height": NONE if is_depthwise else filters,
        },
        "iteration_space_shape": [f"0 <= {name} < {size}" for name, size in sizes.items()],
    }


def workload(layers: list[dict[str, Any]], bits: int) -> dict[str, Any]:
    einsums = [einsum(layer, at, f"T{at}", f"T{at + 1}") for at, layer in enumerate(layers)]
    return {"bits_per_value": {"All": bits}, "einsums": einsums}


def memory(name: str, size: Any, energy: int, keep: dict[str, str], bits: Any = "inf") -> Any:
    """``bits`` a cycle, reading and writing together."""
    from accelforge.frontend.arch import Memory

    actions = [{"name": one, "energy": energy, "throughput": bits} for one in ("read", "write")]
    return Memory(name=name, size=size, leak_power=0, area=0, actions=actions, tensors=keep)


def array(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns and rows of PEs, and the one loop of a layer that may be spread over each: by the
    names that `einsum` gives to loops."""
    return [
        {
            "name": name, "fanout": machine[size],
            "loop_bounds": [{"expression": f"~{name}", "operator": "==", "value": 1}],
        }
        for name, size in (("width", "array_channels"), ("height", "array_filters"))
    ]  # fmt: skip


def architecture(machine: dict[str, Any], goal: str, fused: bool) -> Any:
    from accelforge.frontend.arch import Arch, Compute, Container

    timed = goal == "cycles"
    wire = machine["dram_bytes_per_cycle"] * BITS if timed else "inf"
    sizes = {kind: machine[f"{kind}_bytes"] * BITS for kind in ("input", "weight", "output")}
    if fused:
        nodes = [memory("Dram", "inf", 1, {"keep": "~Intermediates", "may_keep": "All"}, wire)]
        nodes.append(memory("Chip", sum(sizes.values()), 0, {"keep": "All"}))
    else:
        nodes = [memory("Dram", "inf", 1, {"keep": "All"}, wire)]
        nodes += [memory(kind.title(), size, 0, {"keep": kind}) for kind, size in sizes.items()]
    if timed:
        nodes.append(Container(name="Array", spatial=array(machine)))
    compute = [{"name": "compute", "energy": 0, "throughput": 1 if timed else "inf"}]
    nodes.append(Compute(name="Mac", leak_power=0, area=0, actions=compute))
    return Arch(nodes=nodes)


def mapped(question: dict[str, Any], layers: list[dict[str, Any]]) -> Any:
    import accelforge
    from accelforge.frontend.workload import Workload
    from accelforge.mapper import Metrics
    from accelforge.mapper.FFM.main import join_pmappings, make_pmappings

    machine = question["machine"]
    spec = accelforge.Spec(
        arch=architecture(machine, question["goal"], len(layers) > 1),
        workload=Workload(**workload(layers, machine["element_bytes"] * BITS)),
    )
    spec.mapper.metrics = Metrics[METRICS[question["goal"]][0]]
    # A memory may hold its tile over more loops than the memories before it in the list do.
    spec.mapper.force_memory_hierarchy_order = False
    parts = make_pmappings(spec, print_progress=False)
    return join_pmappings(parts, metrics=spec.mapper.metrics, print_progress=False)


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(question_file: str, answer_file: str) -> None:
    with open(question_file) as file:
        question = json.load(file)
    from accelforge.util.parallel import set_n_parallel_jobs

    set_n_parallel_jobs(1)
    mapped(question, [WARM_UP])  # machine code of its own, imports
    begin = cpu_s()
    found = mapped(question, question["layers"])
    _, total = METRICS[question["goal"]]
    answer = {
        "version": metadata.version("accelforge"),
        "cpu_s": cpu_s() - begin,
        "totals": {total.replace("<SEP>", " "): float(found.data[total].iloc[0])},
    }
    with open(answer_file, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
