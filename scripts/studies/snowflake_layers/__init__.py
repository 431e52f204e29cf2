"""Random layers on Snowflake machines: bits, races, and whether a missing `sync` is noticed."""
