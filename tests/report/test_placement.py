"""The split as a table in narrow terminals."""

from __future__ import annotations

import io

from rich.console import Console

from tvm_npu.report.placement import PartitionReport, RegionReport


def test_regions_are_named_in_one_piece_at_80_columns() -> None:
    symbols = ("tvmgen_default_npu_main_0", "tvmgen_default_npu_main_11")
    names = ["nn.conv2d", "nn.bias_add", "nn.max_pool2d", "nn.dense", "add", "nn.relu"]
    operators = tuple((name, name) for name in 2 * names)
    regions = tuple(
        RegionReport(symbol, operators, ((1, 3, 224, 224),), ((1, 1000),), 4_089_184_256)
        for symbol in symbols
    )
    report = PartitionReport("nmp-4x8", "int16", "exact", regions, (), 2 * 4_089_184_256)
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(report.split_table())
    assert max(map(len, out.getvalue().splitlines())) <= 80
    for text in (*symbols, "4,089,184,256"):
        assert text in out.getvalue()
