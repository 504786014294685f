"""Images as files: which layers they have, and what lies on top of each other."""
