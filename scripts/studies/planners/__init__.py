"""Every planner on every machine: runs, bits and times."""
