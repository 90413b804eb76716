"""How well a model retrieves."""
