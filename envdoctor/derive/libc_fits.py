"""Whether this system's C library is new enough for the compiled files of packages: column ``ok`` of ``libc_need``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import Records, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted, rank

INPUTS = ("libc_need", "os.libc", "os.libc_version")
OUTPUTS = ("libc_need",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``libc_need`` with ``ok``, on a system with glibc of a known version."""
    needs, system = value("libc_need"), value("os.libc_version")
    if not isinstance(needs, Records) or value("os.libc") != "glibc" or dotted(str(system)) is None:
        return {}
    items = []
    for item in needs:
        wanted = item.get("glibc", Unknown("not known"))
        ok = rank(wanted) <= rank(str(system)) if isinstance(wanted, str) and dotted(wanted) else None
        items.append(item if ok is None else {**item, "ok": ok})
    return {"libc_need": Derived(Records(tuple(items), needs.incomplete), "compiled files, os.libc_version")}
