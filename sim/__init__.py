"""The machines: descriptions, instruction sets, simulators. Imports nothing of the compiler."""
