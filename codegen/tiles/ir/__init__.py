"""Execution plans of tile machines as text: written, read, run."""
