"""CPU time of starting commands: lists and help, warm profiles, first profiles."""
