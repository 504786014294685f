"""Python source as syntax trees: what a module offers, what it takes, what a script uses. Pure functions."""
