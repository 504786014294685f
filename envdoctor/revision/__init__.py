"""What changed between two snapshots, as records of one shape. Nothing here judges: rules do.

Each folder is a room with one or more comparers (``comparer.py`` is their contract): the modules that stand directly in
it. What they are made of lies in its ``parts/``.
"""
