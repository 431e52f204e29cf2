"""The planning benchmark: how good plans are, how long finding them takes, and how well their
times are known beforehand."""
