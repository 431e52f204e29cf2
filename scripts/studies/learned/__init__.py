"""``scripts/bench_learned``: how fast tuners find good plans, and what measurements are worth to
`exact`."""
