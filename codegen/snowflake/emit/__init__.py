"""Planned layers to compute steps, and these to code."""
