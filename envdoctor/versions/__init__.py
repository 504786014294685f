"""Versions: PEP 440, dotted numbers, ranges, requirements, markers, names. The only such logic in the house."""
