"""Code generation for tile machines: `plan`, `emit`, `tune`, and `ir`, plans as text."""
