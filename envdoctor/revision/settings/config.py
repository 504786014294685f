"""config.json (and adapter_config.json), compared by meaning.

Kinds of changes (``symbol`` is the canonical dotted key, ``text_config.rope_theta``):

``model-type-changed``, ``architecture-changed``, ``auto-map-changed``, ``dtype-changed``, ``vocab-changed``,
``tie-changed``, ``token-id-changed``, ``rope-changed``, ``sliding-window-changed``, ``activation-changed``,
``attention-implementation-changed``, ``norm-changed``, ``position-limit-changed``, ``size-changed``
                          a key of the group of that name in table config-keys has another value
``quantization-added``, ``quantization-removed``, ``quantization-changed``
``rope-moved``            the same rotary settings under the name of another transformers generation (rope_parameters)
``key-renamed``           the same value under another name (torch_dtype -> dtype)
``key-added``, ``key-removed``, ``key-changed``
                          any other key
``implicit``              a key came or went whose value is what its absence means
``without-effect``        a sliding window that use_sliding_window switches off in both
``noise``                 keys that nothing reads (_name_or_path, transformers_version)
``repeated-key``          the new file gives a key twice; readers disagree on which one counts
``config-added``, ``config-removed``
                          the file as a whole
"""

from __future__ import annotations

import posixpath

from envdoctor.revision.comparer import Compared, Revisions
from envdoctor.revision.settings.parts.compare_keys import compare_files

AREA = "config"


def wants(path: str) -> bool:
    """Configurations of models, also in folders of their own, and of adapters."""
    return posixpath.basename(path).lower() in ("config.json", "adapter_config.json")


def compare(revisions: Revisions) -> Compared:
    """The changes of every configuration."""
    return compare_files(AREA, revisions, main="config.json")
