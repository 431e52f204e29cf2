"""The Snowflake compiler's paper on simulated machines: its tables, its figures, its passes."""
