"""Passes over graphs: fuse, calibrate, choose Q-points, quantize, lay out storage."""
