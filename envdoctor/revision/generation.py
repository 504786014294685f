"""generation_config.json: what stops a generation, and what it samples with when the caller says nothing.

Kinds of changes (``symbol`` is the key):

``eos-changed``                eos_token_id
``token-id-changed``           the other token ids
``sampling-default-changed``   do_sample, temperature, top_p, max_new_tokens and the like
``generation-added``, ``generation-removed``
                               the file as a whole
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
    return compare_files("generation", old, new, table, main="generation_config.json")
