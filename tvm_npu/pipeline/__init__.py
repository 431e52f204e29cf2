"""Pipelines over this machine's clusters: platforms as running places, tuning while frames flow."""
