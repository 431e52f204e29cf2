"""Published tables and figures, reproduced on the simulator: paper, ours and ratio by cell."""
