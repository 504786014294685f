"""What the ledger says of one thing that code asks of a package."""

from pathlib import Path
from typing import Any

import known
import pytest
from ledgers import ledger as text

from envdoctor.facts import Unknown
from envdoctor.matrix import Lacking, Ledger, Released, Symbol, answer, went_to, where

SPADE = """[offers]
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
[moved]
spade:old_dig	1.3.0..	spade.extras:more
"""
ROPE = """[offers]
rope	2.0.0..	tie
rope.knots	2.0.0..	Knot
[parameters]
rope.knots:Knot	2.0.0..	turns
rope.knots:Knot	2.0.0..2.0.0	loops
"""


def spades(folder: Path, lines: str = SPADE) -> Ledger:
    """A ledger of two packages, of which one was not read whole."""
    (folder / "spade.txt").write_text(text("spade", "1.0.0 1.1.0 1.2.0? 1.3.0 1.4.0", lines))
    (folder / "rope-kit.txt").write_text(text("rope-kit", "2.0.0 3.0.0", ROPE))
    return Ledger(folder)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return spades(tmp_path)


@pytest.fixture
def spade(ledger: Ledger) -> Released:
    found = ledger.package("spade")
    assert found is not None
    return found


def said(ledger: Ledger, asked: Symbol, version: str, rope: str | None = "3.0.0") -> Lacking | Unknown | None:
    released = ledger.package("spade")
    assert released is not None
    return answer(ledger, released, asked, version, {"rope-kit": rope}.get)


WIDTH, LOOPS = Symbol("spade", "Handle", "width"), Symbol("spade", "Handle", "loops")
KEYWORD = Lacking("keyword", "spade.Handle")


def step(*parameters: str) -> Symbol:
    """An override with these parameters."""
    return Symbol("spade", "Trainer.step", parameters=parameters)


@pytest.mark.parametrize(
    ("asked", "installed", "lacking"),
    [
        # names and modules
        (Symbol("spade"), ["1.0.0"], None),
        (Symbol("spade.extras.deep"), ["1.4.0"], None),
        (Symbol("spade.extras.deep"), ["1.0.0"], Lacking("module", "spade.extras")),
        (Symbol("spade.nothing", "x"), ["1.0.0"], Lacking("module", "spade.nothing")),
        (Symbol("spade", "dig"), ["1.0.0"], None),
        (Symbol("spade", "old_dig"), ["1.3.0"], Lacking("name", "spade.old_dig")),
        (Symbol("spade", "extras.more"), ["1.4.0"], None),
        (Symbol("spade", "extras.less"), ["1.4.0"], Lacking("name", "spade.extras.less")),
        (Symbol("spade", "Handle.anything.else"), ["1.4.0"], None),
        (Symbol("spade", "handles.Handle"), ["1.4.0"], None),
        # what cannot be told
        (Symbol("spade.lazy", "made_up"), ["1.4.0"], Unknown),
        (Symbol("spade", "old_dig"), ["1.2.0"], Unknown),
        (Symbol("spade", "old_dig"), ["2.0.0"], Unknown),
        (Symbol("spade", "_private"), ["1.4.0"], Unknown),
        (Symbol("spade", "dig", "hard"), ["1.4.0"], Unknown),
        (Symbol("spade", "Handle.make", "anything"), ["1.4.0"], Unknown),
        # keywords with those of base classes in other packages
        (Symbol("spade", "Handle", "length"), ["1.4.0"], None),
        (WIDTH, ["1.1.0"], None),
        (WIDTH, ["1.4.0"], KEYWORD),
        (Symbol("spade", "Handle", "turns"), ["1.4.0"], None),
        (LOOPS, ["1.4.0", "2.0.0"], None),
        (LOOPS, ["1.4.0"], KEYWORD),
        (WIDTH, ["1.4.0", None], Unknown),
        # overrides by how the base class calls
        (step("x"), ["1.1.0"], None),
        (step("x"), ["1.3.0"], Lacking("override", "spade.Trainer.step", "1 hard=")),
        (step("x", "**more"), ["1.3.0"], None),
        (step(), ["1.0.0"], Lacking("override", "spade.Trainer.step", "1")),
    ],
)
def test_what_a_release_lacks(ledger: Ledger, asked: Symbol, installed: list[Any], lacking: Any):
    assert known.answer(said(ledger, asked, *installed)) == lacking


def test_how_a_class_calls_its_methods_is_unknown_where_it_is_not_known_where_the_class_is(tmp_path: Path):
    ledger = spades(tmp_path, SPADE.replace("spade:Trainer\t1.0.0..\t", "spade:Trainer\t1.0.0..1.3.0\t"))
    assert isinstance(said(ledger, step("x"), "1.4.0"), Unknown)
    assert isinstance(said(ledger, step("x"), "1.3.0"), Lacking)


@pytest.mark.parametrize(
    ("asked", "near", "releases"),
    [
        (Symbol("spade", "old_dig"), "1.3.0", ">=1.4"),
        (Symbol("spade", "old_dig"), "1.4.0", ">=1.4"),
        (Symbol("spade.extras"), "1.0.0", ">=1.1"),
        (WIDTH, "1.4.0", "<1.3"),
        (step("x"), "1.4.0", "<1.3"),
    ],
)
def test_the_nearest_releases_that_have_it(ledger: Ledger, spade: Released, asked: Symbol, near: str, releases: str):
    having = where(ledger, spade, asked, {"rope-kit": "3.0.0"}.get)
    assert having.nearest(near).excluding(near) == releases


def test_no_release_has_what_never_was(ledger: Ledger, spade: Released):
    assert where(ledger, spade, Symbol("spade", "nothing"), {}.get).specifier is None


def test_of_a_base_class_the_releases_count_with_which_the_other_package_has_it(ledger: Ledger, spade: Released):
    rope = ledger.package("rope-kit")
    assert rope is not None
    assert where(ledger, rope, LOOPS, {"rope-kit": "3.0.0"}.get, (spade, "1.4.0")).versions == ["2.0.0"]
    assert where(ledger, rope, WIDTH, {"rope-kit": "3.0.0"}.get, (spade, "1.4.0")).versions == []


def test_where_a_name_went(spade: Released):
    assert went_to(spade, "spade.old_dig", "1.3.0") == "spade.extras.more"
    assert went_to(spade, "spade.dig", "1.3.0") is None
