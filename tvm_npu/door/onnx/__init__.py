"""ONNX models as both doors read them: names, shapes, and nodes that importers take in part."""
