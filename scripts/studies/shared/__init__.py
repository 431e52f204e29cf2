"""What several studies measure with: networks, models of the benchmarks, simulations."""
