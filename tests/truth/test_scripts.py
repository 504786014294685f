"""Real training scripts against releases before and after each break, with the answers of fixtures/scripts.

The answers were read in released wheels by somebody else (fixtures/scripts/README.md); what the scripts use is recorded
by tools/record_uses.py.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rooms import computing

from envdoctor.facts import Fact, FactSet, Records
from envdoctor.matrix import Matrix, Released, load_toml
from envdoctor.observe import read_facts_file
from envdoctor.versions import is_version, satisfies

compute = computing("broken_use")

SCRIPTS = Path(__file__).resolve().parents[2] / "fixtures" / "scripts"
ENTRIES: dict[str, Mapping[str, Any]] = {
    entry["name"]: entry for entry in load_toml(SCRIPTS / "sources.toml")["script"]
}
#: What is judged by names and signatures; methods of instances, positions and versions that a script demands are not.
KINDS = ("name", "module", "attribute", "keyword", "override")


class Broken(NamedTuple):
    what: str
    line: str


def uses_of(name: str, matrix: Matrix) -> Records:
    value = read_facts_file(SCRIPTS / f"{name}.json", matrix.registry).value("use")
    assert isinstance(value, Records)
    return value


def broken(uses: Records, versions: Mapping[str, str], matrix: Matrix) -> set[Broken]:
    """What would be an error: the thing and each of its lines (``12``, ``cell 3:2``)."""
    facts = FactSet([Fact("use", uses, "", "code")])
    facts.update(Fact(f"pkg.{package}", version, "", "given") for package, version in versions.items())
    found = compute(facts.value, matrix)["broken_use"].value
    assert isinstance(found, Records)
    return {
        Broken(str(item["what"]), place.partition(":")[2])
        for item in found
        if item["reach"] != "unused" and (isinstance(item["has"], str) or isinstance(item["moved_to"], str))
        for place in item["place"]  # type: ignore[union-attr]
    }


def line_of(use: Mapping[str, Any]) -> str:
    return f"cell {use['cell']}:{use['line']}" if "cell" in use else str(use["line"])


def has(use: Mapping[str, Any], version: str) -> bool:
    return use["has"] != "none" and bool(satisfies(version, use["has"]))


def both_sides(use: Mapping[str, Any], released: Released) -> Iterator[tuple[str, bool]]:
    """The releases that were read on both sides of each bound, and whether the line works with them."""
    for before, after in pairwise(released.read):
        if has(use, before) != has(use, after):
            yield before, has(use, before)
            yield after, has(use, after)


def guarded_lines(uses: Records) -> set[str]:
    places = (item["place"] for item in uses if item["guarded"] is True or item["reach"] == "unused")
    return {place.partition(":")[2] for one in places if isinstance(one, tuple) for place in one}


def beside(entry: Mapping[str, Any], use: Mapping[str, Any], matrix: Matrix) -> dict[str, str]:
    """The other packages: as pinned; else transformers as it was when the script was written, and that of the class in
    the newest release whose name the script can import."""
    pins = {package: version for package, version in entry["pins"].items() if is_version(version)}
    if "transformers" not in pins and (transformers := matrix.ledger.package("transformers")) is not None:
        days = {release.version: release.date for release in transformers.releases}
        before = [version for version in transformers.read if days[version] <= str(entry["dated"])]
        pins["transformers"] = before[-1] if before else transformers.read[0]
    owner = matrix.ledger.owner(use["what"])
    released = matrix.ledger.package(owner) if owner is not None else None
    if owner is not None and owner != use["package"] and owner not in pins and released is not None:
        module, _, name = use["what"].partition("(")[0].rpartition(".")
        pins[owner] = next(version for version in released.read[::-1] if released.offers(module, name, version) is True)
    return pins


class Tried(NamedTuple):
    """One line of a script with one release: whether it works there, and whether it is found to be broken."""

    works: bool
    found: bool
    text: str


def tried(name: str, matrix: Matrix) -> Iterator[Tried]:
    entry, uses = ENTRIES[name], uses_of(name, matrix)
    provided = guarded_lines(uses)
    for use in entry["uses"]:
        released, line = matrix.ledger.package(use["package"]), line_of(use)
        if use["kind"] not in KINDS or released is None or line in provided:
            continue
        # Others are there, and not judged, which takes most of the time.
        judged = Records(tuple(one if _is_about(one, use) else {**one, "guarded": True} for one in uses))
        for version, works in both_sides(use, released):
            found = broken(judged, {**beside(entry, use, matrix), use["package"]: version}, matrix)
            here = {one for one in found if one.line == line and (use["kind"] == "override" or one.what == use["what"])}
            # A class or module that is not there at all is told where it is imported, not where it is used.
            around = {one for one in found if use["what"].startswith((f"{one.what}(", f"{one.what}."))}
            text = f"{name}: {use['what']} line {line} with {use['package']} {version}"
            yield Tried(works, bool(here if works else here | around), text)


def _is_about(item: Mapping[str, Any], use: Mapping[str, Any]) -> bool:
    """Whether what is found of a use at its line, or of what it is part of, can come of this item."""
    names = (item[key] for key in ("module", "name") if isinstance(item.get(key), str) and item[key])
    places = {place.partition(":")[2] for place in item["place"]}
    return line_of(use) in places or use["what"].startswith(".".join(names))


@pytest.fixture(scope="module")
def all_tried(matrix: Matrix) -> list[Tried]:
    return [one for name in ENTRIES for one in tried(name, matrix)]


def test_no_line_is_found_broken_with_a_release_that_it_works_with(all_tried: list[Tried]):
    assert [one.text for one in all_tried if one.works and one.found] == []


def test_breaks_are_found_at_their_lines(all_tried: list[Tried]):
    """Missed are, while the ledger lacks their parameters, classes with private bases, and attributes of classes."""
    breaks = [one for one in all_tried if not one.works]
    missed = [one.text for one in breaks if not one.found]
    assert len(breaks) > 250 and len(missed) <= 0.05 * len(breaks), missed


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry["pins"]])
def test_nothing_is_an_error_with_the_releases_that_a_script_pins(name: str, matrix: Matrix):
    entry, uses = ENTRIES[name], uses_of(name, matrix)
    pins = {package: version for package, version in entry["pins"].items() if is_version(version)}
    known = {line_of(use) for use in entry["uses"] if use["package"] in pins and not has(use, pins[use["package"]])}
    assert {one for one in broken(uses, pins, matrix) if one.line not in known} == set()
