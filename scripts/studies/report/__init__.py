"""CPU time and size of reports and traces beyond the profile that they are of."""
