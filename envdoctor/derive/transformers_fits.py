"""Whether the installed transformers lies in the window of the new revision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("revision.transformers_new", "pkg.transformers")
OUTPUTS = ("revision.installed_fits",)

_RELEASE = r"\d{1,9}(?:\.\d{1,9})*"


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``revision.installed_fits``; a release that the ledger does not cover is outside of a bound or not known."""
    window, installed = value("revision.transformers_new"), value("pkg.transformers")
    if not isinstance(window, str) or isinstance(installed, Unknown):
        return {}
    if isinstance(installed, Absent):
        return {"revision.installed_fits": Derived(Unknown("transformers is not installed"), "")}
    from envdoctor.versions.ranges import EVERY, contains, parse_ranges, plain_release

    match = re.match(_RELEASE, str(installed))
    try:
        ranges = EVERY if window == "any" else () if window == "none" else parse_ranges(window)
        release = plain_release(match[0]) if match else None
    except ValueError:
        return {}
    if release is None:
        return {}
    fits = contains(ranges, release)
    origin = f"transformers {installed} against {window}"
    released = matrix.ledger.package("transformers")
    if fits and (released is None or not released.covers(str(installed))):
        reason = Unknown(f"transformers {installed} is not among the releases that were read")
        return {"revision.installed_fits": Derived(reason, "")}
    return {"revision.installed_fits": Derived(fits, origin)}
