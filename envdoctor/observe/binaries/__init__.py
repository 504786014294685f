"""Compiled files of an environment: the extensions that packages built against torch, and torch's own libraries.

Nothing is loaded. Files are read in bounded pieces, never mapped: a mapped file that shrinks would kill the process.
Only files of torch and of the packages in the table torch-extensions are opened: an environment without them costs
nothing.
"""
