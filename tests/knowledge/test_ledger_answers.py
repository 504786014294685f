"""What the ledger says of one thing that code asks of a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.facts import Unknown
from envdoctor.knowledge import Asked, Lacking, Ledger, Released, answer, range_of, releases_with, went_to

SPADE = """envdoctor-ledger	1
package	spade
modules	spade
depth	names
[releases]
1.0.0	2023-01-05	-	read
1.1.0	2023-03-05	-	read
1.2.0	2023-04-05	-
1.3.0	2024-02-05	-	read
1.4.0	2024-03-05	-	read
[requires]
[wheels]
[offers]
spade	1.0.0..1.1.0	old_dig
spade	1.0.0..	Handle	Trainer	dig
spade	1.4.0..	old_dig
spade.extras	1.1.0..	more
spade.extras.deep	1.1.0..	most
spade.handles	1.0.0..	Handle
spade.lazy	1.0.0..	seen
spade.train	1.0.0..	Trainer
[open]
spade.lazy	1.0.0..	it has a __getattr__
[parameters]
spade.handles:Handle	1.0.0..	&rope.knots:Knot	length
spade.handles:Handle	1.0.0..1.1.0	width
spade.handles:Handle.make	1.0.0..	**
spade.train:Trainer	1.0.0..	data
[alias]
spade:Handle	1.0.0..	spade.handles:Handle
spade:Trainer	1.0.0..	spade.train:Trainer
[calls]
spade.train:Base.step	1.0.0..1.1.0	1
spade.train:Base.step	1.3.0..	1 hard=
spade.train:Trainer	1.0.0..	&spade.train:Base
[takes]
[demands]
[moved]
spade:old_dig	1.3.0..	spade.extras:more
"""
ROPE = """envdoctor-ledger	1
package	rope-kit
modules	rope
depth	names
[releases]
2.0.0	2023-01-05	-	read
3.0.0	2024-01-05	-	read
[requires]
[wheels]
[offers]
rope	2.0.0..	tie
rope.knots	2.0.0..	Knot
[open]
[parameters]
rope.knots:Knot	2.0.0..	turns
rope.knots:Knot	2.0.0..2.0.0	loops
[alias]
[calls]
[takes]
[demands]
[moved]
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "spade.txt").write_text(SPADE)
    (tmp_path / "rope-kit.txt").write_text(ROPE.replace("2.0.0..2.0.0", "2.0.0..2.0.0"))
    return Ledger(tmp_path)


@pytest.fixture
def spade(ledger: Ledger) -> Released:
    found = ledger.package("spade")
    assert found is not None
    return found


def said(ledger: Ledger, asked: Asked, version: str = "1.4.0", rope: str | None = "3.0.0") -> Lacking | Unknown | None:
    released = ledger.package("spade")
    assert released is not None
    return answer(ledger, released, asked, version, {"rope-kit": rope}.get)


@pytest.mark.parametrize(
    ("asked", "version", "lacking"),
    [
        (Asked("spade"), "1.0.0", None),
        (Asked("spade.extras.deep"), "1.4.0", None),
        (Asked("spade.extras.deep"), "1.0.0", Lacking("module", "spade.extras")),
        (Asked("spade.nothing", "x"), "1.0.0", Lacking("module", "spade.nothing")),
        (Asked("spade", "dig"), "1.0.0", None),
        (Asked("spade", "old_dig"), "1.3.0", Lacking("name", "spade.old_dig")),
        (Asked("spade", "extras.more"), "1.4.0", None),
        (Asked("spade", "extras.less"), "1.4.0", Lacking("name", "spade.extras.less")),
        (Asked("spade", "Handle.anything.else"), "1.4.0", None),
        (Asked("spade", "handles.Handle"), "1.4.0", None),
    ],
)
def test_names_and_modules(ledger: Ledger, asked: Asked, version: str, lacking: Lacking | None):
    assert said(ledger, asked, version) == lacking


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (Asked("spade.lazy", "made_up"), "1.4.0"),
        (Asked("spade", "old_dig"), "1.2.0"),
        (Asked("spade", "old_dig"), "2.0.0"),
        (Asked("spade", "_private"), "1.4.0"),
        (Asked("spade", "dig", "hard"), "1.4.0"),
        (Asked("spade", "Handle.make", "anything"), "1.4.0"),
    ],
)
def test_what_cannot_be_told(ledger: Ledger, asked: Asked, version: str):
    assert isinstance(said(ledger, asked, version), Unknown)


@pytest.mark.parametrize(
    ("keyword", "version", "rope", "lacks"),
    [
        ("length", "1.4.0", "3.0.0", False),
        ("width", "1.1.0", "3.0.0", False),
        ("width", "1.4.0", "3.0.0", True),
        ("turns", "1.4.0", "3.0.0", False),
        ("loops", "1.4.0", "2.0.0", False),
        ("loops", "1.4.0", "3.0.0", True),
    ],
)
def test_keywords_with_those_of_base_classes_in_other_packages(
    ledger: Ledger, keyword: str, version: str, rope: str, lacks: bool
):
    lacking = Lacking("keyword", "spade.Handle") if lacks else None
    assert said(ledger, Asked("spade", "Handle", keyword), version, rope) == lacking


def test_a_base_class_of_a_package_that_is_not_known_leaves_it_open(ledger: Ledger):
    assert isinstance(said(ledger, Asked("spade", "Handle", "width"), rope=None), Unknown)


@pytest.mark.parametrize(
    ("parameters", "version", "call"),
    [(("x",), "1.1.0", None), (("x",), "1.3.0", "1 hard="), (("x", "**more"), "1.3.0", None), ((), "1.0.0", "1")],
)
def test_overrides_by_how_the_base_class_calls(
    ledger: Ledger, parameters: tuple[str, ...], version: str, call: str | None
):
    lacking = Lacking("override", "spade.Trainer.step", call) if call else None
    assert said(ledger, Asked("spade", "Trainer.step", parameters=parameters), version) == lacking


def test_how_a_class_calls_its_methods_is_unknown_where_it_is_not_known_where_the_class_is(tmp_path: Path):
    text = SPADE.replace("spade:Trainer\t1.0.0..\t", "spade:Trainer\t1.0.0..1.3.0\t")
    (tmp_path / "spade.txt").write_text(text)
    asked = Asked("spade", "Trainer.step", parameters=("x",))
    assert isinstance(said(Ledger(tmp_path), asked, "1.4.0"), Unknown)
    assert isinstance(said(Ledger(tmp_path), asked, "1.3.0"), Lacking)


@pytest.mark.parametrize(
    ("asked", "near", "releases"),
    [
        (Asked("spade", "old_dig"), "1.3.0", ">=1.4"),
        (Asked("spade", "old_dig"), "1.4.0", ">=1.4"),
        (Asked("spade.extras"), "1.0.0", ">=1.1"),
        (Asked("spade", "Handle", "width"), "1.4.0", "<1.3"),
        (Asked("spade", "Trainer.step", parameters=("x",)), "1.4.0", "<1.3"),
    ],
)
def test_the_nearest_releases_that_have_it(ledger: Ledger, spade: Released, asked: Asked, near: str, releases: str):
    row = releases_with(ledger, spade, [asked], near, {"rope-kit": "3.0.0"}.get)
    assert range_of(spade, row, near) == releases


def test_no_release_has_what_never_was(ledger: Ledger, spade: Released):
    assert releases_with(ledger, spade, [Asked("spade", "nothing")], "1.4.0", {}.get) == ()


def test_where_a_name_went(spade: Released):
    assert went_to(spade, "spade.old_dig", "1.3.0") == "spade.extras.more"
    assert went_to(spade, "spade.dig", "1.3.0") is None


def test_a_release_after_the_last_that_was_read_is_not_in_the_range(spade: Released):
    assert range_of(spade, ("1.3.0", "1.4.0"), "2.0.0") == ">=1.3,<=1.4.0"
    assert range_of(spade, ("1.0.0",), "0.9.0") == ">=1.0.0,<1.1"
    assert range_of(spade, ("1.0.0",), "1.4.0") == "<1.1"
