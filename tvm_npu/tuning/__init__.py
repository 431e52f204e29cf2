"""Tuning on the simulator: single layers measured, all layers of a model tuned."""
