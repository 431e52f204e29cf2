"""Plans for the NMP: what a plan costs, whether it is sound, who chooses it."""
