"""Pipelines over unequal execution places: stage configurations and how one is searched."""

from tvm_npu.pipelines.chain import ChainLayer, LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.platform_file import load_platform, platform_names

__all__ = [
    "ChainLayer",
    "Configuration",
    "LayerChain",
    "Platform",
    "load_platform",
    "platform_names",
]
