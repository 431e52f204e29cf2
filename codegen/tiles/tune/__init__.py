"""The plan space of tile machines, as tuners see it."""
