"""Compute steps: what is loaded, computed and stored, in which order."""
