"""Pipelines over unequal execution places: stage configurations and how one is searched."""

from tvm_npu.codegen.stages.chain import ChainLayer, LayerChain
from tvm_npu.codegen.stages.configuration import Configuration

__all__ = ["ChainLayer", "Configuration", "LayerChain"]
