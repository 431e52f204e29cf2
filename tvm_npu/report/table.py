"""A profile's layers as flat rows, with units in the names of columns."""

from __future__ import annotations

from typing import Any

from tvm_npu.report.profile import LayerRow, Profile


def rows(profile: Profile) -> list[dict[str, Any]]:
    """A dictionary for each layer; all have the same keys. What is not known is None."""
    links = [link.name for link in profile.links]
    streams = {
        link: dict.fromkeys(
            stream for layer in profile.layers for stream in layer.bytes_by_link.get(link, {})
        )
        for link in links
    }
    return [_row(layer, streams, list(profile.capacity_bytes)) for layer in profile.layers]


def _row(layer: LayerRow, streams: dict[str, dict[str, None]], parts: list[str]) -> dict[str, Any]:
    found = layer.breakdown
    return {
        "region": layer.region,
        "layer": layer.name,
        "kind": layer.kind,
        "source": " ".join(layer.source),
        "precision": layer.precision,
        "macs": layer.macs,
        "cycles": layer.cycles,
        "time_us": layer.time_us,
        "mac_utilization": layer.mac_utilization,
        "bound": None if found is None else found.bound,
        "mac_cycles": None if found is None else found.mac_cycles,
        "dma_cycles": None if found is None else found.dma_cycles,
        "control_cycles": None if found is None else found.control_cycles,
        "wait_cycles": None if found is None else found.wait_cycles,
        "roofline_cycles": None if found is None else found.roofline_cycles,
        "roofline_share": None if found is None else found.roofline_share,
        "roof": None if found is None else found.roof,
        "predicted_cycles": layer.predicted_cycles,
        **{
            f"{link}_{stream}_bytes": layer.bytes_by_link.get(link, {}).get(stream, 0)
            for link, names in streams.items()
            for stream in names
        },
        "dram_bytes": layer.dram_bytes,
        "dram_live_bytes": layer.dram_live_bytes,
        "bursts": layer.bursts,
        "instructions": layer.instructions,
        "code_bytes": layer.code_bytes,
        **{f"{part}_peak_bytes": layer.peak_bytes.get(part) for part in parts},
        "energy_uj": layer.energy_uj,
    }
