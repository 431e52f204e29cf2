"""Code generation for Snowflake machines."""
