"""Fuzzing: inputs that nobody would write, for every parser and every simulator."""
