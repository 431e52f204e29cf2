"""ONNX nodes that TVM's Relay importer reads in part, or wrongly: read whole, or refused."""
