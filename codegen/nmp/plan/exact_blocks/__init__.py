"""The search for the fastest plan of a block, in numba: lower bounds of many plans at once, and
the cost model for those that a bound does not leave out."""
