"""Code for parts of machines of several kinds."""
