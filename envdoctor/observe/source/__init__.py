"""Observations of Python source: what stops the imports of installed packages."""
