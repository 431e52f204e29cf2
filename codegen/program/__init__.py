"""The program file: what it holds, how it is checked, which instruction comes from where."""
