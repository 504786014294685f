"""Answers from a small ledger: a library, and a package that asks it for names."""

from functools import partial

import pytest

GARDEN = """envdoctor-ledger	1
package	garden
modules	garden
depth	names
[releases]
1.0.0	2023-01-05	-	metadata	read
1.0.1	2023-02-05	-	metadata
1.1.0	2023-03-05	-	metadata	read
1.2.0	2023-04-05	-	metadata	read	yanked
2.0.0	2024-01-05	>=3.10	metadata	read
[offers]
garden	1.0.0..1.1.0	Fence
garden	1.0.0..	Bed	PotConfig	PotTrainer
garden	1.1.0..	Gate
garden.beds	1.0.0..	Bed
garden.lazy	1.0.0..
garden.mixed	1.0.0..	Hoe
garden.old	1.0.0..1.2.0	rake_leaves	water_plants
garden.parts	2.0.0..	Fence
garden.work	2.0.0..	rake_leaves	water_plants
[open]
garden.lazy	1.0.0..	it has a __getattr__
garden.mixed	1.0.0..1.0.0	it makes names
[parameters]
garden.beds:Base	1.0.0..1.2.0	width
garden.beds:Base	1.0.0..	length
garden.beds:Base	2.0.0..	breadth
garden.beds:Bed	1.0.0..	&garden.beds:Base	soil
garden.beds:Bed.dig	1.0.0..1.1.0	self
garden.beds:PotConfig	1.0.0..	pots
garden.beds:PotConfig	1.1.0..	light
garden.beds:PotTrainer	1.0.0..	pots
garden.beds:RaisedBed	1.0.0..	&garden.beds:Bed
garden.beds:RaisedBed.grow	1.0.0..	days	self
[alias]
garden:Bed	1.0.0..	garden.beds:Bed
[calls]
garden.beds:Bed.grow	2.0.0..	2 hours=
[moved]
garden:Fence	1.2.0..	garden.parts:Fence
"""
SPADE = """envdoctor-ledger	1
package	spade
modules	spade
depth	names
[releases]
0.1.0	2023-01-05	-	metadata	read
0.2.0	2023-02-05	-	metadata	read
0.3.0	2023-03-05	-	metadata	read
0.4.0	2024-03-05	-	metadata	read
[requires]
*	0.1.0..	garden>=1.0	leafblower>=3
*	0.4.0..	garden>=3
[offers]
spade	0.1.0..	Bed	Spade
[parameters]
spade.core:Bed	0.1.0..	&garden:Bed
[takes]
spade	0.1.0..0.2.0	garden:Fence @spade.core
spade	0.1.0..	garden:Bed @spade.core
"""
FROM_SPADE = """Traceback (most recent call last):
  File "/x/site-packages/spade/core.py", line 3, in <module>
    from garden import Fence
ImportError: cannot import name 'Fence' from 'garden' (/x/site-packages/garden/__init__.py)
"""


@pytest.fixture
def answer(ask):
    return partial(ask, ledger={"garden": GARDEN, "spade": SPADE})


def keyword(callee, name):
    return f"{callee}() got an unexpected keyword argument '{name}'"


#: The message, what it asks for, the releases that have it, and what to use instead in which releases.
HOMES = [
    # where a name went is what the harvest saw
    ("cannot import name 'Fence' from 'garden'", "name garden.Fence", "<1.2", ("garden.parts.Fence", ">=2.0")),
    # a module went where most of its names are; one that was gone before the first release that was read, too
    ("No module named 'garden.old'", "module garden.old", "<2.0", ("garden.work", ">=2.0")),
    ("No module named 'garden.tools.work'", "module garden.tools.work", None, ("garden.work", ">=2.0")),
    # a keyword of a base class, and of the class that an unknown one ends in
    (keyword("Bed.__init__", "width"), "keyword Bed(width=)", "<2.0", None),
    (keyword("RosePotConfig.__init__", "light"), "keyword PotConfig(light=)", ">=1.1", None),
    # a keyword that the settings beside it take
    (
        keyword("PotTrainer.__init__", "light"),
        "keyword PotTrainer(light=)",
        None,
        ("garden.PotConfig(light=)", ">=1.1"),
    ),
    # settings have what they are given; a method that a class lost
    ("'PotConfig' object has no attribute 'light'", "member PotConfig.light", ">=1.1", None),
    ("'PotConfig' object has no attribute 'shade'", "member PotConfig.shade", None, None),
    ("'Bed' object has no attribute 'dig'", "member Bed.dig", "<1.2", None),
    # a method of a known class takes no keyword because others of its name are called with it
    (keyword("Bed.dig", "hours"), "keyword Bed.dig(hours=)", None, None),
    (keyword("RaisedBed.grow", "hours"), "passes Bed.grow(hours=)", ">=2.0", None),
    (keyword("RosePotTrainer.grow", "hours"), "passes Bed.grow(hours=)", ">=2.0", None),
    # a name without its module is that of the one package that has it
    ("cannot import name 'Fence'", "name garden.Fence", "<1.2", ("garden.parts.Fence", ">=2.0")),
    (
        "cannot import name 'water_plants'",
        "name garden.old.water_plants",
        "<2.0",
        ("garden.work.water_plants", ">=2.0"),
    ),
]


@pytest.mark.parametrize(("text", "thing", "releases", "moved"), HOMES)
def test_the_releases_that_have_it_and_where_it_went(answer, text, thing, releases, moved):
    found = answer(text)
    (home,) = found.homes
    assert (home.package, f"{home.kind} {home.thing}", home.releases) == ("garden", thing, releases)
    assert [(one.new, one.releases) for one in found.moved] == ([moved] if moved else [])
    assert (home.first, home.last) == ("1.0.0", "2.0.0")
    assert ("attributes of objects" in home.doubt) is (home.kind == "member")


@pytest.mark.parametrize(
    ("name", "installed", "there", "pins"),
    [
        ("Gate", "1.0.0", False, ["garden==1.1.0"]),
        ("Gate", "1.0.1", None, []),  # it was not read, and lies between two that differ
        ("Fence", "2.0.0", False, ["garden==1.1.0"]),  # 1.2.0 was withdrawn
        ("Gate", "2.0.0", True, []),
    ],
)
def test_the_installed_release_is_judged(answer, name, installed, there, pins):
    found = answer(f"cannot import name '{name}' from 'garden'", garden=installed)
    assert (found.homes[0].installed, found.homes[0].there) == (installed, there)
    assert [pin for way in found.ways[:1] for pin in way.pins] == pins or there is None
    assert found.notes == ((("elsewhere", "garden 2.0.0"),) if there else ())


def test_the_releases_of_who_asks_that_do_without(answer):
    found = answer(FROM_SPADE, garden="2.0.0", spade="0.2.0")
    assert (found.asker.package, found.asker.version, found.asker.asks) == ("spade", "0.2.0", "<0.3")
    assert found.asker.fits == ("0.3.0",), "0.4.0 asks for garden>=3"
    assert found.ways[0].pins == ("spade==0.3.0",)
    assert found.ways[1].pins == ("garden==1.1.0",)


def test_an_asker_without_versions(answer):
    found = answer(FROM_SPADE)
    assert found.asker.fits == ("0.4.0", "0.3.0")
    assert found.ways[0].pins == ("spade==0.4.0",)


def test_a_package_that_asks_itself_has_files_of_two_releases(answer):
    text = FROM_SPADE.replace("spade/core.py", "garden/beds.py")
    found = answer(text, garden="2.0.0")
    assert found.notes == (("mixed", "garden"),)
    assert "--force-reinstall" in found.ways[0].commands[0]


def test_what_the_asker_requires_and_nobody_else_knows(answer):
    text = FROM_SPADE.replace("cannot import name 'Fence' from 'garden'", "No module named 'leafblower'")
    found = answer(text.replace("ImportError", "ModuleNotFoundError"))
    assert found.homes[0].package == "leafblower" and found.ways[0].pins == ("leafblower>=3",)


def test_of_two_classes_of_one_name_the_one_that_the_other_inherits_from(answer):
    text = "Bed.__init__() got an unexpected keyword argument 'width'"
    assert [home.package for home in answer(text).homes] == ["garden"]
    assert [home.package for home in answer(text, spade="0.1.0").homes] == ["garden"]


def test_that_no_release_takes_it_says_nothing_of_a_class_that_anybody_may_have(answer):
    text = "Bed.__init__() got an unexpected keyword argument 'cushion'"
    assert not answer(text).known
    assert answer(text, garden="2.0.0").homes[0].releases is None
    assert answer(f"from garden import Bed\nTypeError: {text}").homes[0].releases is None


def test_a_name_that_most_releases_are_known_to_lack(answer):
    (home,) = answer("cannot import name 'Axe' from 'garden.mixed'").homes
    assert home.releases is None and "makes names" in home.doubt


def test_what_asks_for_an_argument_that_was_not_given(answer):
    found = answer("Bed.__init__() missing 1 required positional argument: 'breadth'", garden="2.0.0")
    (home,) = found.homes
    assert (home.kind, home.thing, home.releases) == ("asks", "Bed(breadth=)", ">=2.0")
    assert found.ways[0].pins == ("garden==1.1.0",)


@pytest.mark.parametrize(
    "text",
    [
        "MyBed.grow() got an unexpected keyword argument 'hours'",
        "grow() got an unexpected keyword argument 'hours'",
        "MyBed.grow() takes 2 positional arguments but 3 were given",
    ],
)
def test_a_method_of_the_users_that_is_called_in_a_new_way(answer, text):
    found = answer(text)
    assert (found.homes[0].kind, found.homes[0].releases) == ("passes", ">=2.0")
    assert found.ways[0].kind == "accept"


@pytest.mark.parametrize(
    "text",
    [
        "cannot import name 'anything' from 'garden.lazy'",
        "MyBed.weed() got an unexpected keyword argument 'hours'",
        "'Tree' object has no attribute 'dig'",
        "No module named 'leafblower'",
        "cannot import name 'log'",
        keyword("RoseBed.__init__", "width"),
        "Bed.__init__() missing 1 required positional argument: 'length'",  # every release asks
        "RoseBed.__init__() missing 1 required positional argument: 'breadth'",  # a class of a user
    ],
)
def test_what_cannot_be_told_is_not_known(answer, text):
    assert not answer(text).known


def test_a_module_that_must_be_imported_itself(answer):
    (moved,) = answer("module 'garden' has no attribute 'beds'", garden="2.0.0").moved
    assert moved.new == "import garden.beds"


@pytest.mark.parametrize(
    ("text", "package"),
    [
        (keyword("__init__", "use_seedable_sampler"), "accelerate"),
        ("cannot import name 'flash_attn_unpadded_func'", "flash-attn"),
    ],
)
def test_what_is_not_said_where_may_be_known_to_the_table(answer, text, package):
    assert answer(text).homes[0].package == package


def test_a_release_between_two_that_have_it_in_other_classes_has_it_too(ask):
    two = GARDEN.replace("garden.beds:PotC", "garden.beds:Fork\t1.0.0..1.0.0\ttines\ngarden.beds:PotC", 1)
    two = two.replace("[alias]", "garden.work:Fork\t1.1.0..\ttines\n[alias]")
    found = ask("Fork.__init__() got an unexpected keyword argument 'tines'", {"garden": two}, garden="1.0.1")
    assert (found.homes[0].releases, found.homes[0].there, found.ways) == ("", True, ())
