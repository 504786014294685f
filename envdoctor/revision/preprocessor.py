"""Configurations of image, video and audio preprocessors and of processors.

Kinds of changes (``symbol`` is the key):

``processor-class-changed``   processor_class, image_processor_type, auto_map, …
``normalisation-changed``     mean, standard deviation, rescaling
``size-changed``              sizes, pixel limits, patches: how many tokens a picture takes
``audio-changed``             sampling rate, windows
``preprocessor-added``, ``preprocessor-removed``
                              a file as a whole
``key-added``, ``key-removed``, ``key-changed``, ``key-renamed``, ``implicit``, ``noise``, ``repeated-key``
                              as in config
"""

from __future__ import annotations

from envdoctor.hub.snapshot import Snapshot
from envdoctor.revision.change import Compared
from envdoctor.revision.settings import Table, compare_files

__all__ = ["compare"]


def compare(old: Snapshot, new: Snapshot, table: Table | None = None) -> Compared:
    """The changes. ``table`` reads a table of the matrix (by default of the shipped one)."""
    return compare_files("preprocessor", old, new, table, main="preprocessor_config.json")
