"""Arithmetic on (n, m) matrices: fast, exact where it matters, twice differentiable. No notion of images or classes."""
