"""The plan space of the NMP, as tuners see it."""
