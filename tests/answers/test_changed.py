"""Answers from a file of changes: packages whose other files were not read, and what lies below those that were."""

import lzma

import pytest
from harvesting.ledger_format import complaints_of_changes

POND = """envdoctor-ledger	1
package	pond
modules	pond
depth	metadata
[releases]
1.0.0	2023-01-05	-	metadata
1.1.0	2023-02-05	-	metadata
1.2.0	2023-03-05	-	metadata
2.0.0	2024-03-05	-	metadata
[requires]
[wheels]
"""
CHANGES = """1.0.0	1.1.0	2.0.0
[offers]
pond	A..	Water	lily
pond	B..	frog
pond._reed	A..B
pond.bank	A..B	Newt
pond.bank	C..	Toad
pond.fish	C..
[members]
pond.bank:Heron	A..B	wade
pond.bank:Stork	C..	nest
[parameters]
pond.bank:Bank	B..	slope
pond.bank:Heron.fish	C..	depth	depth!
pond.bank:dig	A..A	deep
pond.swan:Swan	A..B	neck
"""


@pytest.fixture
def answer(ask, tmp_path):
    assert list(complaints_of_changes(CHANGES, ["1.0.0", "1.1.0", "1.2.0", "2.0.0"])) == []
    (tmp_path / "pond.xz").write_bytes(lzma.compress(CHANGES.encode()))
    return lambda text, ledger=POND, **installed: ask(text, {"pond": ledger}, **installed)


@pytest.mark.parametrize(
    ("text", "kind", "releases"),
    [
        ("cannot import name 'frog' from 'pond'", "name", ">=1.1"),
        ("cannot import name 'Newt' from 'pond.bank'", "name", "<2.0"),
        ("module 'pond' has no attribute 'frog'", "name", ">=1.1"),
        ("cannot import name 'lily' from 'pond'", "name", ""),
        ("No module named 'pond._reed'", "module", "<2.0"),
        ("module 'pond' has no attribute 'fish'", "name", ">=2.0"),
        ("'Heron' object has no attribute 'wade'", "member", "<2.0"),
        ("type object 'Heron' has no attribute 'wade'", "member", "<2.0"),
        ("Bank.__init__() got an unexpected keyword argument 'slope'", "keyword", ">=1.1"),
        ("Heron.fish() got an unexpected keyword argument 'depth'", "keyword", ">=2.0"),
        ("dig() got an unexpected keyword argument 'deep'", "keyword", "<1.1"),
        ("TypeError: Unexpected keyword argument 'neck'", "keyword", "<2.0"),
        ("Heron.fish() missing 1 required positional argument: 'depth'", "asks", ">=2.0"),
    ],
)
def test_what_changed_is_told(answer, text, kind, releases):
    (home,) = answer(text).homes
    assert (home.package, home.kind, home.releases) == ("pond", kind, releases)


@pytest.mark.parametrize(
    "text",
    [
        "cannot import name 'Carp' from 'pond.bank'",
        "'Swan' object has no attribute 'wade'",
        "Swan.__init__() got an unexpected keyword argument 'slope'",
        "swim() got an unexpected keyword argument 'neck'",
        "module 'lake' has no attribute 'frog'",
    ],
)
def test_of_what_did_not_change_nothing_is_known(answer, text):
    assert not answer(text).known


@pytest.mark.parametrize(
    "text",
    ["No module named 'pond.otter'", "cannot import name 'otter' from 'pond'", "module 'pond' has no attribute 'wet'"],
)
def test_of_modules_and_of_names_at_the_top_all_are_known(answer, text):
    (home,) = answer(text).homes
    assert (home.releases, home.first, home.last, home.doubt) == (None, "1.0.0", "2.0.0", "")


def test_that_no_release_has_something_is_doubted_where_older_ones_were_not_read(answer):
    older = POND.replace("[releases]", "[releases]\n0.9.0\t2022-01-05\t-\tmetadata")
    (home,) = answer("No module named 'pond.otter'", ledger=older).homes
    assert home.releases is None and home.doubt == "pond was read from 1.0.0 on"


def test_what_a_compiled_object_is_of_is_written_with_its_module(answer):
    assert answer("'pond.Heron' object has no attribute 'wade'").homes[0].releases == "<2.0"
    assert not answer("'lake.Heron' object has no attribute 'wade'").known


def test_between_two_releases_that_differ_nothing_is_said(answer):
    assert answer("cannot import name 'Newt' from 'pond.bank'", pond="1.2.0").homes[0].there is None
    found = answer("cannot import name 'Newt' from 'pond.bank'", pond="2.0.0")
    assert found.homes[0].there is False and found.ways[0].pins == ("pond==1.1.0",)


def test_what_the_source_calls_may_have_handed_on_what_it_was_given(answer):
    text = 'File "/x/zoo.py", line 3, in <module>\n    Bank(slope=3)\nTypeError: __new__() got an unexpected '
    assert answer(f"{text}keyword argument 'slope'").homes[0].thing == "Bank(slope=)"


def test_an_attribute_may_be_inherited_from_a_class_beside(answer):
    (home,) = answer("'Stork' object has no attribute 'wade'").homes
    assert (home.thing, home.releases, home.doubt) == ("Stork.wade", "<2.0", "")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (CHANGES.replace("1.0.0", "0.9.0", 1), "releases of the package"),
        (CHANGES.replace("[members]", "[calls]"), "the sections are"),
        (CHANGES.replace("A..B\tNewt", "A..X\tNewt"), "a span of releases"),
        (CHANGES.replace("depth!", "depth?"), "no item of the section"),
    ],
)
def test_a_broken_file_of_changes_is_told(changed, said):
    found = list(complaints_of_changes(changed, ["1.0.0", "1.1.0", "1.2.0", "2.0.0"]))
    assert found and said in found[0]
