"""Whether the compiled extensions fit this system's C library and this Python: two facts a rule cannot compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.registry import dotted
from envdoctor.facts.values import Absent, Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("extension", "os.libc", "os.libc_version", "python.version", "python.implementation")
OUTPUTS = ("extension",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``extension`` with its columns ``glibc_ok`` and ``python_ok``; a given one stands where it cannot be computed."""
    extensions = value("extension")
    if not isinstance(extensions, Records) or not len(extensions):
        return {}
    items: list[dict[str, Value]] = []
    for item in extensions:
        fits = {
            "glibc_ok": _glibc_ok(item.get("glibc_needs", Unknown("not known")), value),
            "python_ok": _python_ok(item.get("python_tag", Unknown("not known")), value),
        }
        items.append({**item, **{key: cell for key, cell in fits.items() if not isinstance(cell, Unknown)}})
        for key, cell in fits.items():
            items[-1].setdefault(key, cell)
    return {"extension": Derived(Records(tuple(items), extensions.incomplete), "compiled files")}


def _glibc_ok(needs: Value, value: Callable[[str], Value]) -> Value:
    if isinstance(needs, Absent):
        return True
    libc, version = value("os.libc"), value("os.libc_version")
    for one in (needs, libc, version):
        if isinstance(one, Unknown):
            return one
    wanted, there = dotted(str(needs)), dotted(str(version))
    if libc != "glibc" or wanted is None or there is None:
        return Unknown("this system's C library is not glibc")
    return wanted <= there


def _python_ok(tags: Value, value: Callable[[str], Value]) -> Value:
    """Whether one of the tags (``cp310, cp311``) is this Python's; a module for any Python has none."""
    if isinstance(tags, Absent):
        return True
    version, implementation = value("python.version"), value("python.implementation")
    for one in (tags, version, implementation):
        if isinstance(one, Unknown):
            return one
    if implementation != "cpython":
        return Unknown("only the tags of CPython are compared")
    mine = "cp" + "".join(str(version).split(".")[:2])
    return mine in str(tags).split(", ")
