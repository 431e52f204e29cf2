"""Our exact planners beside mappers of others: CPU time, least time, least traffic."""
