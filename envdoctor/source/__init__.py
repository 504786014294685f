"""Python source as syntax trees: what modules offer, what importing them takes. Nothing is imported or run."""
