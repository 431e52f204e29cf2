"""The benchmark's sweep: variations of one NMP."""

from __future__ import annotations

from typing import Any

from tvm_npu.sweep.spec import SweepSpec, spec_from_dict

NETWORKS = ("lenet", "squeezenet1.0", "mobilenet_v2", "resnet50", "inception_v3")
BASE = "nmp-4x8"
KEYS: dict[str, list[Any]] = {
    "cores.tles": [1, 2, 4, 8],
    "cores.tlts_per_tle": [4, 8, 16],
    "memories.mb0_bytes": [4096, 8192, 16384],
    "memories.mb1_bytes": [4096, 8192, 16384],
    "memories.mb2_bytes": [4096, 8192, 16384],
    "memories.ports": [1, 2],
    "dme.bytes_per_cycle": [1.4, 2.8, 5.6],
    "dram.burst_bytes": [64, 128, 256],
    "dram.bytes_per_cycle": [8.5, 17.0, 34.0],
}
"""Cores, memories, and their bandwidth."""
CONSTRAINTS = ["memories.mb2_bytes <= memories.mb0_bytes"]
MACS_PER_CYCLE = {
    "formula": "cores.tles * cores.tlts_per_tle * mac.datapath_bits / 16",
    "source": "the machine file: 16-bit multipliers",
}


def sweep(machines: int, models: list[str], fidelity: list[str]) -> SweepSpec:
    """``machines`` drawn from all variations, every layer planned by itself."""
    return spec_from_dict(
        {
            "models": models,
            "machine": {"base": BASE, "keys": KEYS, "constraints": CONSTRAINTS},
            "planners": ["exact-layers"],
            "precisions": ["int16"],
            "fidelity": fidelity,
            "outcome": {"macs_per_cycle": MACS_PER_CYCLE},
            "search": {
                "method": "random",
                "designs": machines,
                "objectives": ["time_us", "dram_bytes", "macs_per_cycle"],
            },
        }
    )
