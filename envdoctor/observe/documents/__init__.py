"""Read documents that describe an environment that is not at hand: facts files, locks, SBOMs, pasted reports."""
