"""What releases take of each other, by small ledgers: what is missing, and which releases of either would fit."""

from pathlib import Path

import pytest
from ledgers import ledger as text

from envdoctor.facts import ABSENT
from envdoctor.matrix import Ledger, Matrix, fitting_consumers, fitting_providers, missing
from envdoctor.versions import satisfies

CONSUMER = """[requires]
*	1.0.0..	garden>=1
*	2.0.0..	soil	water; python_version<"3.9"
[takes]
spade	1.0.0..	soil @spade	water @spade
spade	1.0.0..1.1.0	garden:Bed @spade.digging
spade	1.0.0..	garden.tools @spade	gravel:Path @spade
spade:Handle	2.0.0..	garden:Lawn @spade.handles	garden:Pond @spade.water if water
spade:Rake	2.0.0..	garden:Bed @spade.rakes if garden<2	garden<1.5 @spade.rakes if water>=2
"""
PROVIDER = """[offers]
garden	1.0.0..1.5.0	Bed
garden	1.5.0..	Lawn
garden.tools	1.0.0..	rake
"""
CLOSED = """[offers]
gravel	1.0.0..1.5.0
[open]
gravel	1.0.0..1.5.0	its names are not listed here
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "spade.txt").write_text(text("spade", "1.0.0 1.1.0 2.0.0", CONSUMER))
    (tmp_path / "garden.txt").write_text(text("garden", "1.0.0 1.5.0 2.0.0", PROVIDER))
    (tmp_path / "gravel.txt").write_text(text("gravel", "1.0.0 1.5.0 2.0.0", CLOSED))
    return Ledger(tmp_path)


def lacking(ledger: Ledger, version: str, **installed: str) -> list[tuple[str, str, str]]:
    spade = ledger.package("spade")
    assert spade is not None
    return [(take.entry, take.name, provider) for take, provider in missing(ledger, spade, version, installed.get)]


HANDLE, RAKE = "from spade import Handle", "from spade import Rake"
OLD = {"garden": "2.0.0"}


@pytest.mark.parametrize(
    ("spade", "installed", "entry", "told"),
    [
        ("1.0.0", OLD, "", [("import spade", "Bed", "garden")]),
        ("2.0.0", {"garden": "1.0.0"}, "", [(HANDLE, "Lawn", "garden")]),
        ("1.0.0", {"garden": "1.5.0"}, "", []),
        # what is taken only beside a package is missing only beside it
        ("2.0.0", OLD, "", []),
        ("2.0.0", {**OLD, "water": "1.0"}, HANDLE, [(HANDLE, "Pond", "garden")]),
        # versions decide what is taken and what is asked for
        ("2.0.0", {**OLD, "water": "2.1"}, RAKE, [(RAKE, "", "garden")]),
        ("2.0.0", {**OLD, "water": "1.9"}, RAKE, []),
        ("2.0.0", {"garden": "1.0.0", "water": "2.1"}, RAKE, []),
        # of releases that were not read nothing is said
        ("0.9", OLD, "", []),
        ("1.0.0", {"garden": "3.0.0"}, "", []),
        # but what both its neighbours take
        ("1.5.0", {**OLD, "gravel": "2.0.0"}, "", [("import spade", "Path", "gravel")]),
    ],
)
def test_what_is_missing_beside_installed_releases(
    ledger: Ledger, spade: str, installed: dict[str, str], entry: str, told: list[tuple[str, str, str]]
) -> None:
    found = lacking(ledger, spade, **installed)
    assert [one for one in found if entry in one[0]] == told


def test_what_the_metadata_requires_is_missing_where_it_is_not_installed(ledger: Ledger) -> None:
    spade = ledger.package("spade")
    assert spade is not None
    absent = dict.fromkeys(("garden", "soil", "water"), ABSENT)
    told = {provider for _, provider in missing(ledger, spade, "2.0.0", absent.get)}
    assert told == {"garden", "soil"}  # water is asked for on other Pythons
    assert [provider for _, provider in missing(ledger, spade, "1.0.0", {"garden": ABSENT}.get)] == ["garden", "garden"]
    assert list(missing(ledger, spade, "2.0.0", {}.get)) == []


def test_the_releases_that_fit(ledger: Ledger) -> None:
    spade, garden, gravel = map(ledger.package, ("spade", "garden", "gravel"))
    assert spade is not None and garden is not None and gravel is not None
    assert fitting_providers(ledger, spade, "1.0.0", garden).specifier == "<2.0"
    assert fitting_providers(ledger, spade, "1.0.0", gravel).specifier == "<2.0"  # its names are not listed
    assert fitting_consumers(ledger, spade, garden, "1.0.0").specifier == "<2.0"
    assert fitting_consumers(ledger, spade, garden, "9.0.0").has("1.0.0") is None


#: Releases that took what transformers released days later.
AHEAD = {("autoawq", "0.1.2", "transformers", "4.33.3")}


def test_what_a_release_allowed_and_its_day_had_is_no_broken_link(matrix: Matrix) -> None:
    # its makers ran it with these: who is accused here takes the name behind a condition that was not understood
    accused, asked = set(), 0
    for consumer in filter(None, map(matrix.ledger.package, matrix.ledger.packages())):
        days = {release.version: release.date for release in consumer.releases}
        for version in consumer.read if consumer.by_names else ():
            beside = {}
            for need in consumer.requires(version):
                provider = matrix.ledger.package(need.name)
                releases = provider.releases if provider is not None and provider.by_names else ()
                allowed = (one for one in releases if not need.specifiers or satisfies(one.version, need.specifiers))
                fits = [one.version for one in allowed if one.date <= days[version] and not one.yanked]
                if fits:
                    beside[need.name] = fits[-1]
            asked += len(beside)
            gaps = missing(matrix.ledger, consumer, version, beside.get)
            accused |= {(consumer.name, version, name, beside[name]) for _, name in gaps}
    assert accused == AHEAD and asked > 2000
