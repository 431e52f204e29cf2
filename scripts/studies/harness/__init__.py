"""What all benchmarks and reproductions share: the command line, parts of work that are kept across
interruptions, output files, tables, drawings."""
