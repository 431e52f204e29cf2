"""Benchmarks and reproductions, a folder each; the launchers in scripts/ run them."""
