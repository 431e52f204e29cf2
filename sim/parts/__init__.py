"""Parts that machines of several kinds can have."""
