"""ONNX nodes that TVM's Relax importer reads in part: read whole, or refused."""
