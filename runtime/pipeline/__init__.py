"""Pipelines: a process for each stage, pinned to a cluster's cores; frames go through in order."""
