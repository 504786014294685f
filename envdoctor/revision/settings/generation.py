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

import posixpath

from envdoctor.revision.comparer import Compared, Revisions
from envdoctor.revision.settings.parts.compare_keys import compare_files

AREA = "generation"
_MAIN = "generation_config.json"


def wants(path: str) -> bool:
    """Defaults of generation, also in folders of their own."""
    return posixpath.basename(path).lower() == _MAIN


def compare(revisions: Revisions) -> Compared:
    """The changes."""
    return compare_files(AREA, revisions, main=_MAIN)
