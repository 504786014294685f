"""Observation: what is, one module a source. Reads files and machines into facts, and never judges."""
