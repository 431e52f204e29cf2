"""Tile machines and their simulator: programs whose instructions work on whole tiles.

`machine` describes them, `isa` is the table of their instructions, `rates` how long they take.
"""
