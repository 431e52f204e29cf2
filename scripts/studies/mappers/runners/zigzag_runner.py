"""Asks ZigZag one question; runs in an environment of its own: `zigzag_runner.py QUESTION ANSWER`,
both JSON files as `studies.mappers.question` says. Imports nothing of this project.

An access of the outer memory costs as much energy as it has bytes, all else costs none, so that the
least energy is the least traffic. The array is spread over channels and filters; memories on chip
give it what it asks for in a cycle.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import tempfile
from importlib import metadata
from typing import Any

BITS = 8
ANY_BITS = 1 << 20
"""As wide as a port of a memory on chip can be of use."""
DIRECTIONS = {"in": ("fh", "tl"), "out": ("fh", "tl", "fl", "th")}
OPERANDS = {"I1": "in", "I2": "in", "O": "out"}
WARM_UP = {
    "name": "warm", "filters": 4, "channels": 4, "groups": 1, "rows": 4, "columns": 4,
    "kernel": [1, 1], "stride": [1, 1],
}  # fmt: skip


def memory(size_bits: int, operands: list[str], word: int, width: int, cost: float) -> Any:
    allocation = [
        f"{operand}, {way}" for operand in operands for way in DIRECTIONS[OPERANDS[operand]]
    ]
    if len(operands) > 1:
        ports = {"both": ("read_write", allocation)}
    else:
        reads = [one for one in allocation if one[-2] == "t"]
        ports = {"r": ("read", reads), "w": ("write", [x for x in allocation if x not in reads])}
    return {
        "size": size_bits, "r_cost": cost, "w_cost": cost, "area": 0, "latency": 1,
        "operands": operands, "served_dimensions": ["D1", "D2"],
        "ports": [
            {
                "name": f"{'rw' if kind == 'read_write' else name}_port_1", "type": kind,
                "bandwidth_min": word, "bandwidth_max": width, "allocation": ways,
            }
            for name, (kind, ways) in ports.items()
        ],
    }  # fmt: skip


def accelerator(machine: dict[str, Any]) -> dict[str, Any]:
    word = machine["element_bytes"] * BITS
    wire = int(machine["dram_bytes_per_cycle"] * BITS)
    inner = {"input": "I1", "weight": "I2", "output": "O"}
    memories = {
        name: memory(machine[f"{name}_bytes"] * BITS, [operand], word, ANY_BITS, 0.0)
        for name, operand in inner.items()
    }
    memories["dram"] = memory(1 << 50, list(OPERANDS), word, wire, wire / BITS)
    return {
        "name": "machine",
        "memories": memories,
        "operational_array": {
            "unit_energy": 0.0, "unit_area": 0.0, "dimensions": ["D1", "D2"],
            "sizes": [machine["array_channels"], machine["array_filters"]],
        },
    }  # fmt: skip


def mapping(machine: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": "default",
            "spatial_mapping": {
                "D1": [f"C, {machine['array_channels']}"],
                "D2": [f"K, {machine['array_filters']}"],
            },
            "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
        }
    ]


def workload(layer: dict[str, Any], word: int) -> list[dict[str, Any]]:
    groups, (rows, columns), (down, right) = layer["groups"], layer["kernel"], layer["stride"]
    sizes = {
        "B": 1, "K": layer["filters"] // groups, "G": groups, "OX": layer["columns"],
        "OY": layer["rows"], "C": layer["channels"] // groups, "FX": columns, "FY": rows,
    }  # fmt: skip
    return [
        {
            "id": 0, "name": "layer", "operator_type": "Conv",
            "equation": "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]",
            "dimension_relations": [f"ix={right}*ox+1*fx", f"iy={down}*oy+1*fy"],
            "loop_dims": list(sizes), "loop_sizes": list(sizes.values()),
            "operand_precision": {"W": word, "I": word, "O": word, "O_final": word},
            "operand_source": {"W": 0, "I": 0},
        }
    ]  # fmt: skip


def mapped(question: dict[str, Any], layer: dict[str, Any], folder: str) -> tuple[float, float]:
    """Energy, which is bytes of the outer memory, and latency in cycles."""
    import yaml
    from zigzag.api import get_hardware_performance_zigzag

    machine = question["machine"]
    files = {}
    contents = {
        "machine": accelerator(machine),
        "mapping": mapping(machine),
        "layer": workload(layer, machine["element_bytes"] * BITS),
    }
    for name, content in contents.items():
        files[name] = os.path.join(folder, f"{name}.yaml")
        with open(files[name], "w") as file:
            yaml.safe_dump(content, file, sort_keys=False)  # inner memories first
    energy, latency, _ = get_hardware_performance_zigzag(
        files["layer"], files["machine"], files["mapping"],
        opt="energy" if question["goal"] == "bytes" else "latency",
        dump_folder=os.path.join(folder, "out"), loma_show_progress_bar=False,
    )  # fmt: skip
    return energy, latency


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main(question_file: str, answer_file: str) -> None:
    with open(question_file) as file:
        question = json.load(file)
    (layer,) = question["layers"]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        mapped(question, WARM_UP, folder)
        begin = cpu_s()
        energy, latency = mapped(question, layer, folder)
        used = cpu_s() - begin
    answer = {
        "version": metadata.version("zigzag-dse"), "cpu_s": used,
        "totals": {"energy": energy, "latency": latency},
    }  # fmt: skip
    with open(answer_file, "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
