"""Recipes: what the user says of the run. So far one fact at a time (``--set``)."""
