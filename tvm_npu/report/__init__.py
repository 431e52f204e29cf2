"""What a model costs and why, made of programs, statistics and events; knows no kind of machine.

`placement` says what runs where, `profile` what every layer costs, `breakdown` what binds it,
`memory` how full memories are.
"""

from tvm_npu.report.placement import PartitionReport, Refusal, RegionReport

__all__ = ["PartitionReport", "Refusal", "RegionReport"]
