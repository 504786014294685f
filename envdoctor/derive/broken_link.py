"""What stops imports, with the releases that would not: links read from installed files, else from the ledger.

Where the statements were really run (the probe imports), a link stands only if one of those that it stops failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Records, Unknown, Value
from envdoctor.knowledge.ledger import Ledger
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("link", "link_read", "import_run", "pkg.*")
OUTPUTS = ("broken_link",)


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``broken_link``: the items of ``link``, completed."""
    links = value("link")
    if isinstance(links, Unknown):
        return {"broken_link": Derived(Records((), links.reason), "the imports of the installed packages")}
    if not isinstance(links, Records):
        return {}
    worked = _worked(value("import_run"))
    items = tuple(_completed(item, matrix.ledger) for item in links if not _refuted(item, worked))
    return {"broken_link": Derived(Records(items, links.incomplete), "the imports of the installed packages")}


def _worked(runs: Value) -> Mapping[str, bool]:
    """Whether a statement worked when it was really run, by statement; none where none was."""
    items = runs.items if isinstance(runs, Records) else ()
    return {str(item["entry"]): item["outcome"] == "works" for item in items}


def _refuted(link: Mapping[str, Value], worked: Mapping[str, bool]) -> bool:
    """Whether statements that the link stops were run, and all of them worked."""
    ran = [worked[statement] for statement in str(link["stops"]).split(", ") if statement in worked]
    return bool(ran) and all(ran)


def _completed(link: Mapping[str, Value], ledger: Ledger) -> Mapping[str, Value]:
    provider, wanted = str(link["provider"]), link.get("wanted")
    constraint: Value = ABSENT
    if isinstance(wanted, str):
        constraint = provider + wanted
    elif link["kind"] in ("module", "name", "attribute"):
        released = ledger.package(provider)
        module, name = str(link["module"]), str(link["name"])
        if link["provider_version"] is ABSENT:
            constraint = provider
        elif released is not None and released.by_names:
            item = name[len(module) + 1 :]
            has = released.specifier("offers", module, item) if item else None
            constraint = ABSENT if not has or " or " in has else provider + has
    columns = ("consumer", "consumer_version", "provider", "provider_version", "kind", "name", "place", "stops", "text")
    return {**{column: link[column] for column in columns}, "constraint": constraint, "consumer_constraint": ABSENT}
