"""Documents that describe an environment that is not at hand: facts files (lock files and pasted reports follow)."""
