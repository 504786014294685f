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

import posixpath

from envdoctor.revision.comparer import Compared, Revisions
from envdoctor.revision.settings.parts.compare_keys import compare_files

AREA = "preprocessor"
_MAIN = "preprocessor_config.json"
_FILES = (
    *(_MAIN, "processor_config.json", "image_processor_config.json", "video_preprocessor_config.json"),
    "feature_extractor_config.json",
)


def wants(path: str) -> bool:
    """Configurations of preprocessors and processors."""
    return posixpath.basename(path).lower() in _FILES


def compare(revisions: Revisions) -> Compared:
    """The changes."""
    return compare_files(AREA, revisions, main=_MAIN)
