"""What the ledger answers about releases that it read, that lie between, before and after them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from harvesting.ledger_format import complaints, complaints_of_folder
from harvesting.writing import write_packed
from known import answer
from ledgers import ledger

from envdoctor.facts import Unknown
from envdoctor.matrix import PACKED, Ledger, Matrix, Released, load_matrix

FILE = """envdoctor-ledger	1
package	spade-kit
modules	garden	spade
depth	names
[releases]
1.0.0	2023-01-05	>=3.8	metadata	read
1.0.1	2023-02-05	>=3.8
1.1.0	2023-03-05	>=3.8	metadata	read
1.1.1	2023-04-05	>=3.8	metadata	read	yanked
1.2.0	2024-01-05	>=3.9	metadata
1.3.0	2024-02-05	-	metadata	read
1.4.0	2024-03-05	-	yanked
[requires]
*	1.0.0..1.1.1	torch<2
*	1.0.0..	numpy>=1.17
*	1.2.0..	torch<3
[wheels]
*	1.0.0..1.0.1	py3-none-any	sdist
*	1.1.0..	cp311-cp311-manylinux_2_28_x86_64
[offers]
*	1.0.0..	os
*	1.3.0..	length	old_dig
spade	1.0.0..1.1.0	old_dig
spade	1.0.0..	Handle	dig
spade	1.1.1..	new_dig
spade	1.3.0..	old_dig
spade.extras	1.1.0..
spade.handles	1.0.0..1.1.1	length
spade.handles	1.0.0..	Handle
spade.lazy	1.0.0..	seen
spade.tools	1.0.0..
spade.tools.known	1.0.0..
[open]
spade.lazy	1.1.0..	it has a __getattr__
spade.served	1.1.0..	a finder may serve it
spade.tools.*	1.0.0..	not all modules of the package are listed here
[parameters]
spade.handles:Handle	1.0.0..	&spade.handles:Base	length
spade.handles:nothing	1.0.0..
[alias]
spade:Handle	1.0.0..	spade.handles:Handle
[calls]
spade.handles:Handle.grip	1.1.0..	2 hard=
[takes]
spade	1.0.0..	numpy:array @spade.handles	torch @spade.handles if torch>=1.9
[demands]
*	1.1.0..	torch<2 @spade.check
[moved]
spade:old_dig	1.1.1..	spade:new_dig
"""


DIFFER = Unknown("spade-kit 1.2.0 was not read, and 1.1.1 and 1.3.0 differ")
UP_TO, FROM = Unknown("spade-kit was read up to 1.3.0"), Unknown("spade-kit was read from 1.0.0 on")
INNER = Unknown("spade.tools.known.inner of spade-kit 1.0.0: not all modules of the package are listed here")
SERVED = Unknown("spade.served of spade-kit 1.1.0: a finder may serve it")


LAZY = Unknown("spade.lazy of spade-kit 1.1.0: it has a __getattr__")


def released(folder: Path, name: str, text: str) -> Released:
    """The package of that text."""
    (folder / f"{name}.txt").write_text(text)
    found = Ledger(folder).package(name.title().replace("-", "_"))
    assert found is not None
    return found


def elsewhere(name: str) -> Unknown:
    return Unknown(f"the ledger does not say from where {name} can be taken")


@pytest.fixture
def spade(tmp_path: Path) -> Released:
    """A package of whose seven releases four were read."""
    return released(tmp_path, "spade-kit", FILE)


def test_releases_are_listed_with_what_was_read_of_them(spade: Released):
    assert spade.modules == ("garden", "spade") and spade.by_names
    assert ",".join(release.version for release in spade.releases) == "1.0.0,1.0.1,1.1.0,1.1.1,1.2.0,1.3.0,1.4.0"
    assert spade.releases[3] == ("1.1.1", "2023-04-05", ">=3.8", True, True, True)
    assert spade.releases[6] == ("1.4.0", "2024-03-05", "", False, False, True)


#: By the question: what is told of each release.
TOLD: dict[str, dict[str, object]] = {
    "has offers spade old_dig": {
        **{"1.0.0": True, "1.0": True, "1.1.0+cu121": True, "1.1.1": False, "1.3.0": True},
        **{"1.0.1": True, "1.2.0": DIFFER},  # between releases that have it, and that differ
    },
    "has offers spade new_dig": {"1.0.1": False},  # between releases that do not have it
    "has offers spade dig": {
        **{"1.1.0rc1": True, "1.4.0": UP_TO, "1.3.1.dev0": UP_TO, "0.9": FROM, "1.0.0rc1": FROM},
        "latest": Unknown("latest is no version"),
    },
    "items offers spade": {"1.0.1": ("Handle", "dig", "old_dig"), "1.2.0": DIFFER},
    "items offers spad": {"1.0.0": ()},
    "items parameters spade.handles:Handle": {"1.3.0": ("&spade.handles:Base", "length")},
    "items calls spade.handles:Handle.grip": {"1.1.1": ("2 hard=",)},
    # requirements and wheels speak of other releases
    "items requires *": {"1.2.0": ("numpy>=1.17", "torch<3"), "1.4.0": UP_TO},
    "items wheels *": {"1.0.1": ("py3-none-any", "sdist")},
    "has wheels * sdist": {"1.4.0": False},
    # a subject may be there without items
    "listed offers spade.extras": {"1.1.1": True, "1.0.0": False},
    "listed parameters spade.handles:nothing": {"1.3.0": True},
    "listed parameters spade.handles:never": {"1.3.0": False},
    # an import finds names and modules below
    "offers spade dig": {"1.0.0": True},
    "offers spade extras": {"1.1.0": True, "1.0.0": False, "1.0.1": Unknown},
    "offers spade.lazy seen": {"1.1.0": True},
    "offers spade.lazy unseen": {"1.0.0": False, "1.1.0": LAZY},
    # names that the ledger leaves out, and one that a module had and that may come from elsewhere now
    "offers spade os": {"1.0.0": elsewhere("os")},
    "offers spade _private": {"1.0.0": elsewhere("_private")},
    "offers spade other": {"1.0.0": False},
    "offers spade.handles length": {"1.3.0": elsewhere("length"), "1.1.1": True},
    "offers spade old_dig": {"1.1.1": False},  # what packages hand on is recorded
    # modules are there or not, or not listed
    "exists spade.extras": {"1.1.0": True, "1.0.0": False, "2.0": Unknown},
    "exists spade.served": {"1.0.0": False, "1.1.0": SERVED},
    "offers spade served": {"1.1.0": SERVED},
    "exists spade.tool": {"1.0.0": False},
    "exists spade.tools.known.inner": {"1.0.0": INNER},
    "offers spade.tools.known inner": {"1.0.0": INNER},
    "offers spade.tools.known.inner Name": {"1.0.0": INNER},
    "offers spade.tools.known Name": {"1.0.0": False},  # no module has such a name
    "exists spade.tools.other": {"1.0.0": False},
    "exists spade.tools.other.inner": {"1.0.0": False},
}


@pytest.mark.parametrize("question", TOLD)
def test_what_the_ledger_tells(spade: Released, question: str):
    about, *words = question.split()
    found = {version: getattr(spade, about)(*words, version) for version in TOLD[question]}
    assert {v: answer(one) if TOLD[question][v] is Unknown else one for v, one in found.items()} == TOLD[question]


def test_names_of_a_kind_that_is_made_on_demand_are_unknown(tmp_path: Path):
    spade = released(tmp_path, "spade", FILE.replace("[open]\n", "[open]\nspade:*Maker\t1.1.0..\tit makes them\n"))
    assert spade.offers("spade", "HandleMaker", "1.1.0") == Unknown("spade 1.1.0 makes names like *Maker")
    assert isinstance(spade.offers("spade.handles", "HandleMaker", "1.1.0"), Unknown)
    assert spade.offers("spade", "HandleMaker", "1.0.0") is False
    assert spade.offers("spade", "Makers", "1.1.0") is False


def test_a_package_known_by_metadata_says_nothing_of_names(tmp_path: Path):
    spade = released(tmp_path, "spade", ledger("spade", "1.0", depth="metadata"))
    assert not spade.by_names
    assert spade.offers("spade", "dig", "1.0") == Unknown("the ledger has no names of this package")
    assert spade.has("offers", "spade", "dig", "1.0") == Unknown("the ledger has no names of this package")
    assert spade.items("requires", "*", "1.0") == ()


def test_subjects_are_found_by_what_they_have(spade: Released):
    assert spade.having("offers", "spade", item="old_dig").specifier == "<1.1.1 or >=1.3"
    of_spade = ("", ".extras", ".handles", ".lazy", ".tools", ".tools.known")
    assert list(spade.subjects("offers")) == ["*", *(f"spade{module}" for module in of_spade)]
    assert list(spade.subjects_with("offers", "Handle")) == ["spade", "spade.handles"]
    assert list(spade.subjects_with("offers", "dig")) == ["spade"]
    assert list(spade.subjects_with("offers", "Hand")) == []
    assert list(spade.subjects("never")) == []


def test_the_owner_of_a_module_is_the_package_that_lists_it(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE)
    found = Ledger(tmp_path)
    assert found.packages() == ("spade-kit",)
    assert found.owner("garden.beds") == found.owner("spade") == "spade-kit"
    assert found.owner("kit") is None and found.package("../spade-kit") is None
    assert Ledger(tmp_path / "none").owner("spade") is None


SHARED = {
    name: f"envdoctor-ledger\t1\npackage\t{name}\nmodules\t{name}\ndepth\tmetadata\n[releases]\n"
    f"1.0\t2023-01-05\t-\tm\n[requires]\n*\tA..\t{needs}\n[wheels]\n*\tA..\tpy3-none-any\n"
    for name, needs in (("bucket", "rope<2"), ("pail", "rope>=2"), ("rope", "spade-kit"))
}


def share(folder: Path, texts: Mapping[str, str] = SHARED) -> bytes:
    """The shared file of a ledger with these packages."""
    write_packed(folder, {name: text.encode() for name, text in texts.items()}, ())
    return (folder / PACKED).read_bytes()


def test_packages_that_share_a_file_are_known_and_named_apart(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE)
    share(tmp_path)
    found = Ledger(tmp_path)
    assert found.packages() == ("spade-kit",) and found.every() == ("bucket", "pail", "rope", "spade-kit")
    for name, text in SHARED.items():
        package = found.package(name)
        assert package is not None and package._data.decode() == text
        assert found.owner(name) == name and not package.by_names
    assert found.package("_metadata") is None and found.days() == ("2023-01-05", "2024-03-05")
    assert list(complaints_of_folder(tmp_path)) == []


def test_the_texts_are_read_when_a_package_is_asked_for_and_once(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE)
    data = share(tmp_path)
    (tmp_path / PACKED).write_bytes(data[: data.find(b"\n") + 1])  # would fail when read
    found = Ledger(tmp_path)
    assert found.package("spade-kit") is not None and found.package("shovel") is None and "pail" in found.every()
    (tmp_path / PACKED).write_bytes(data)
    assert found.package("pail") is not None
    (tmp_path / PACKED).unlink()
    assert found.package("rope") is not None


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"bucket\tpail", b"pail\tbucket", "line 1: names of packages in order"),
        (b"bucket\tpail", b"bucket", "has other packages than its first line names"),
        (b"bucket\tpail", b"basket\tpail", "basket: line 2: package"),
        (b"\n\xfd7zXZ", b"\n\xfd7zXY", "cannot be read"),
        (b"\n\xfd7zXZ", b"", "cannot be read"),
        (b"YZ", b"Y", "cannot be read"),
    ],
)
def test_a_shared_file_that_is_invalid_has_no_packages(tmp_path: Path, old: bytes, new: bytes, complaint: str):
    data = share(tmp_path)
    assert old in data
    (tmp_path / PACKED).write_bytes(data.replace(old, new, 1))
    assert any(complaint in problem for _, problem in complaints_of_folder(tmp_path))
    assert Ledger(tmp_path).package("shovel") is None


def test_a_shared_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    share(tmp_path)
    monkeypatch.setattr("envdoctor.matrix.ledger._LONGEST_TEXTS", 100)
    assert Ledger(tmp_path).package("pail") is None


def test_what_a_shared_file_may_not_have(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE)
    text = SHARED["rope"]
    share(tmp_path, {"rope": text.replace("\tmetadata\n", "\tnames\n"), "bucket": text})
    (tmp_path / "rope.txt").write_text(text)
    problems = [problem for _, problem in complaints_of_folder(tmp_path)]
    assert "rope: its files were read: it needs a file of its own" in problems
    assert "rope has a file of its own too" in problems
    assert any(problem.startswith("bucket: line 2: package") for problem in problems)


def test_no_file_is_opened_before_it_is_asked_for(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE)
    found = Ledger(tmp_path)
    (tmp_path / "other.txt").symlink_to(tmp_path / "nowhere")  # would fail when read
    assert found.package("spade-kit") is found.package("spade_kit") is not None


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("ledger\t1", "ledger\t2", "line 1: envdoctor-ledger 1"),
        ("package\tspade-kit", "package\tspade", "line 2: package: the normalised name of the file"),
        ("garden\tspade", "spade\tgarden", "line 3: modules: names of modules in order"),
        ("depth\tnames", "depth\tall", "line 4: depth: names or metadata"),
        ("[open]", "[opened]", "line 33: [opened] is not expected here"),
        ("1.0.1\t2023-02-05", "1.0.1rc1\t2023-02-05", "line 7: releases: '1.0.1rc1' is no release"),
        ("2023-02-05", "2023-02-35", "line 7: releases: '2023-02-35' is no day"),
        ("\t>=3.9\t", "\t3.9\t", "line 10: releases: '3.9' compares no version"),
        ("read\tyanked", "yanked\tread", "line 9: releases: the flags are metadata, read, yanked, in this order"),
        ("1.0.1\t2023", "1.5.1\t2023", "releases: 1.1.0 stands behind 1.5.1"),
        ("torch<2\n", "torch<two\n", "line 14: requires: *: 'torch<two' is no item"),
        ("..1.0.1\tpy3", "..1.0.2\tpy3", "line 18: wheels: *: 1.0.0..1.0.2: a span of releases"),
        ("spade\t1.1.1..\tnew", "spade\t1.2.0..\tnew", "line 25: offers: spade: 1.2.0..: a span of releases"),
        ("1.0.0..\tHandle\tdig", "1.0.0..\tdig\tHandle", "line 24: offers: spade: items are sorted"),
        ("1.0.0..\tHandle\tdig", "1.0.0..1.3.0\tHandle\tdig", "line 24: offers: spade: 1.0.0..1.3.0 ends before"),
        ("\tnew_dig", "\tdig", "line 25: offers: spade: 'dig' stands in another line for the same releases"),
        ("spade.extras\t1.1.0..\n", "spade.extra\t1.1.0..\nspade.\t1.1.0..\n", "line 28: offers: spade.: this is no"),
        ("spade.extras\t1.1.0..\n", "spade.zeal\t1.1.0..\n", "line 28: offers: spade.handles: lines are sorted"),
        ("2 hard=", "hard", "line 43: calls: spade.handles:Handle.grip: 'hard' is no item"),
        ("numpy:array @spade.handles", "numpy:array", "line 45: takes: spade: 'numpy:array' is no item"),
        ("torch<2 @spade.check", "torch<2", "line 47: demands: *: 'torch<2' is no item"),
    ],
)
def test_what_a_file_may_not_say(old: str, new: str, complaint: str):
    assert old in FILE and list(complaints("spade-kit", FILE.encode())) == []
    found = list(complaints("spade-kit", FILE.replace(old, new, 1).encode()))
    assert any(complaint in problem for problem in found), found


def test_every_file_of_a_ledger_is_held_to_its_format(tmp_path: Path):
    (tmp_path / "spade-kit.txt").write_text(FILE.replace("\t1\n", "\t2\n", 1))
    (tmp_path / "notes.md").write_bytes(b"\xff")
    (tmp_path / "rope.xz").write_bytes(b"")
    assert [name for name, _ in complaints_of_folder(tmp_path)] == ["notes.md", "rope.xz", "spade-kit.txt"]


def test_the_shipped_ledger_has_its_format(matrix: Matrix):
    assert list(complaints_of_folder(matrix.home / "ledger")) == []


def test_the_wheel_carries_the_ledger_as_it_is(compiled: Path, matrix: Matrix):
    assert load_matrix().ledger.every() == matrix.ledger.every() != matrix.ledger.packages() != ()
    for file in (f"{matrix.ledger.packages()[0]}.txt", PACKED):
        assert (compiled / "ledger" / file).read_bytes() == (matrix.home / "ledger" / file).read_bytes()
