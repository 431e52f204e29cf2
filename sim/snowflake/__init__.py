"""Snowflake: a trace-based accelerator with a scalar control core, vector MACs and software-managed
buffers (papers: the Snowflake compiler, called Jaó; arXiv 1708.02579)."""
