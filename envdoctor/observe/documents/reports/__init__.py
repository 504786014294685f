"""Pasted reports: what tools print of an environment, and what people write, read line by line into facts."""
