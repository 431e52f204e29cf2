"""NMP code: layers as command trees, these as RV32IM and Xnmp instructions."""
