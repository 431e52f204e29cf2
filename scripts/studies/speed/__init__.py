"""CPU time of plans over graphs and of simulation: whole networks, and scalar instructions."""
