"""The NMP simulator: RISC-V cores, MAC units, DMA engines, DRAM and semaphores.

`state` holds everything that changes, the semantic modules (`scalar`, `mac`, `dma`, `semaphores`)
say what each instruction does, `dispatch` is generated from the ISA table, `engine` orders events
in time, `simulator` is the Python face.
"""
