"""Distributions whose wheel was built for another Python or another platform, by its tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.installed import InstalledSet
from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.wheel_tags import TARGET_KEYS, wheel_target

INPUTS = ("dist", *TARGET_KEYS)
OUTPUTS = ("foreign_wheel", "environment.packages_python")

#: The kinds of metadata on disk; a list has none.
_INSTALLED = ("dist-info", "egg-info", "conda")
#: Compiled for one release of CPython: cp310-cp310-…
_TIED = re.compile(r"cp(3)(\d{1,3})-cp3\d{1,3}t?-")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``foreign_wheel``, what ``uv pip check`` calls built for a different platform, and the Python for which most of
    the compiled packages are. Only CPython on Linux with glibc is compared."""
    installed = InstalledSet(value)
    if not installed.known:
        return {}
    tagged = [
        (one, one.tags, not others)
        for one, *others in installed
        if isinstance(one.tags, tuple) and one.tags and all(tag.count("-") == 2 for tag in one.tags)
    ]
    tied = {one.name: match for one, tags, _ in tagged if (match := _TIED.match(tags[0]))}
    packages = _most({name: f"{match[1]}.{match[2]}" for name, match in tied.items()})
    target = wheel_target(value)
    if target is None or target.system not in ("linux", None):
        foreign: Value = Unknown("the tags of installed wheels are compared for CPython 3 on Linux with glibc")
    else:
        foreign = Records(
            tuple(
                {
                    "package": one.name,
                    "version": one.version if isinstance(one.version, str) else ABSENT,
                    "built_for": why,
                    "tag": tags[0],
                    "loads": not (single and target.cannot_load(tags)),
                    "listed": one.kind not in _INSTALLED,
                }
                for one, tags, single in tagged
                if (why := target.misses(tags[0])) is not None and all(target.misses(tag) for tag in tags)
            ),
            installed.incomplete or (None if target.known else "the Python, the system or the C library is not known"),
        )
    return {
        "foreign_wheel": Derived(foreign, "WHEEL files"),
        "environment.packages_python": Derived(packages, "WHEEL files"),
    }


def _most(releases: Mapping[str, str]) -> Value:
    """The Python for which most of the compiled packages are, torch among them where it is compiled for one."""
    if not releases:
        return ABSENT
    (release, count), *_ = Counter(releases.values()).most_common(1)
    if 2 * count <= len(releases) or releases.get("torch", release) != release:
        return Unknown("packages compiled for several releases of Python are mixed")
    return release
