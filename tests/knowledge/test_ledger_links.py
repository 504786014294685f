"""What releases take of each other, by small ledgers: what is missing, and which releases of either would fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.facts import ABSENT
from envdoctor.knowledge import Ledger, fitting_consumers, fitting_providers, missing

HEAD = "envdoctor-ledger\t1\npackage\t{name}\nmodules\t{name}\ndepth\tnames\n[releases]\n"
CONSUMER = """1.0.0	2023-01-05	-	metadata	read
1.1.0	2023-02-05	-	metadata	read
2.0.0	2023-03-05	-	metadata	read
[requires]
*	1.0.0..	garden>=1
*	2.0.0..	soil	water; python_version<"3.9"
[takes]
spade	1.0.0..	soil @spade	water @spade
spade	1.0.0..1.1.0	garden:Bed @spade.digging
spade	1.0.0..	garden.tools @spade
spade:Handle	2.0.0..	garden:Lawn @spade.handles	garden:Pond @spade.water if water
spade:Rake	2.0.0..	garden:Bed @spade.rakes if garden<2	garden<1.5 @spade.rakes if water>=2
"""
PROVIDER = """1.0.0	2023-01-05	-	metadata	read
1.5.0	2023-02-05	-	metadata	read
2.0.0	2023-03-05	-	metadata	read
[offers]
garden	1.0.0..1.5.0	Bed
garden	1.5.0..	Lawn
garden.tools	1.0.0..	rake
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    for name, text in (("spade", CONSUMER), ("garden", PROVIDER)):
        (tmp_path / f"{name}.txt").write_text(HEAD.format(name=name) + text, encoding="utf-8")
    return Ledger(tmp_path)


def lacking(ledger: Ledger, version: str, **installed: str) -> list[tuple[str, str, str]]:
    spade = ledger.package("spade")
    assert spade is not None
    return [(take.entry, take.name, provider) for take, provider in missing(ledger, spade, version, installed.get)]


def test_what_an_installed_release_does_not_have_is_missing(ledger: Ledger) -> None:
    assert lacking(ledger, "1.0.0", garden="2.0.0") == [("import spade", "Bed", "garden")]
    assert lacking(ledger, "2.0.0", garden="1.0.0") == [("from spade import Handle", "Lawn", "garden")]
    assert lacking(ledger, "1.0.0", garden="1.5.0") == []


def test_what_is_taken_only_beside_a_package_is_missing_only_beside_it(ledger: Ledger) -> None:
    assert lacking(ledger, "2.0.0", garden="2.0.0") == []
    assert ("from spade import Handle", "Pond", "garden") in lacking(ledger, "2.0.0", garden="2.0.0", water="1.0")


def test_versions_decide_what_is_taken_and_what_is_asked_for(ledger: Ledger) -> None:
    rakes = [("from spade import Rake", "", "garden")]
    assert [one for one in lacking(ledger, "2.0.0", garden="2.0.0", water="2.1") if "Rake" in one[0]] == rakes
    assert [one for one in lacking(ledger, "2.0.0", garden="2.0.0", water="1.9") if "Rake" in one[0]] == []
    assert [one for one in lacking(ledger, "2.0.0", garden="1.0.0", water="2.1") if "Rake" in one[0]] == []


def test_what_the_metadata_requires_is_missing_where_it_is_not_installed(ledger: Ledger) -> None:
    spade = ledger.package("spade")
    assert spade is not None
    absent = dict.fromkeys(("garden", "soil", "water"), ABSENT)
    told = {provider for _, provider in missing(ledger, spade, "2.0.0", absent.get)}
    assert told == {"garden", "soil"}  # water is asked for on other Pythons
    assert [provider for _, provider in missing(ledger, spade, "1.0.0", {"garden": ABSENT}.get)] == ["garden", "garden"]
    assert list(missing(ledger, spade, "2.0.0", {}.get)) == []


@pytest.mark.parametrize(("spade", "garden"), [("0.9", "2.0.0"), ("1.0.0", "3.0.0"), ("1.5.0", "2.0.0")])
def test_of_releases_that_were_not_read_nothing_is_said(ledger: Ledger, spade: str, garden: str) -> None:
    assert lacking(ledger, spade, garden=garden) == []


def test_the_releases_that_fit_are_a_constraint_near_the_installed_one(ledger: Ledger) -> None:
    spade, garden = ledger.package("spade"), ledger.package("garden")
    assert spade is not None and garden is not None
    assert fitting_providers(ledger, spade, "1.0.0", garden, "2.0.0") == "garden<2.0"
    assert fitting_consumers(ledger, spade, "1.0.0", garden, "1.0.0") is None
    assert fitting_consumers(ledger, spade, "2.0.0", garden, "1.0.0") == "spade<2.0"
    assert fitting_consumers(ledger, spade, "1.0.0", garden, "9.0.0") is None
