"""What a program takes, known before it runs: its blocks of code, and all clusters together."""
