"""The user's own scripts, folders and notebooks (``--code``): what they use of other distributions."""
