"""The double-buffer paper's evaluation: FlowNetS's contracting part on a simulated Zynq-7020."""
