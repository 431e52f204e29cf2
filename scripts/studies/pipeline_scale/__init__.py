"""Searches for pipelines on many places and layers, and fleets of machines."""
