"""The installed set of an environment on disk, and what lies beside it: read from files, nothing is imported or run.

There is no cache. Reading the 313 distributions of the benchmark environment takes 7 ms, 5 of them for their metadata;
a cache that noticed an edited METADATA would still have to list the folder and to look at each file, and saved 3 ms
when it was tried.
"""
