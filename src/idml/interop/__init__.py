"""Bridges to other libraries, each needing an extra of its own."""
