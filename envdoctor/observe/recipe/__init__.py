"""Read recipes: the files that describe a run (``--recipe``), and single facts (``--set``)."""
