"""Lock files and lists of requirements: what would be installed, read before anything is."""
