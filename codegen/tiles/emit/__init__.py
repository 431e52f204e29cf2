"""Tile code: layers as steps, steps as tile instructions and DMA programs."""
