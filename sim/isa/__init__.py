"""Instruction sets as data: one table per ISA; everything else derives from it."""
