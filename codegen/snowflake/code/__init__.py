"""Instructions: writing them, ordering them, registers, banks."""
