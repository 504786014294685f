"""Models by name and on disk: what a text names, the Hub cache, and JSON files that may be hostile."""
