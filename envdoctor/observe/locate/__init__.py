"""Finding the environment that is judged, and how it is laid out on disk."""
