"""The sweep benchmark: a thousand machines, by engines and numbers of workers."""
