"""Plans of layers on Snowflake machines."""
