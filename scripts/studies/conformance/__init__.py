"""ONNX as a standard: its backend cases and random graphs, against reference and stock TVM."""
