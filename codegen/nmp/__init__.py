"""Code generation for the NMP: `plan` asks and answers, `emit` writes code, `tune` measures."""
