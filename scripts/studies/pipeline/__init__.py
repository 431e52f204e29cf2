"""The pipeline benchmark: real streams over this machine's cores, one of them slowed down."""
