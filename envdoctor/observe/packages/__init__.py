"""The installed set of an environment on disk, and what lies beside it: read from files, nothing is imported or run."""
