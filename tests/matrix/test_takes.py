"""What small packages take of others, and what must be beside them for it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest
from harvesting.takes import Others, takes_of

#: What other packages are known, with their releases; the package is younger than the first three.
RELEASES = ("0.9", "1.0", "1.5", "2.0", "3.0")
GUARD = """
    import importlib.util
    from importlib.metadata import version as installed
    from packaging import version
    def is_there(name):
        return importlib.util.find_spec(name) is not None
    def is_newer(name, than):
        return is_there(name) and version.parse(version.parse(installed(name)).base_version) >= version.parse(than)
    def is_older(name, than):
        return is_there(name) and version.parse(installed(name)) < version.parse(than)
"""

Taken = dict[str, list[str]]


@pytest.fixture
def taken(tmp_path: Path) -> Callable[..., Taken]:
    """Write modules and tell what is taken (``garden:Bed @spade if garden``) by the statements that take it."""

    def tell(files: Mapping[str, str], *, required: tuple[str, ...] = ()) -> Taken:
        for name, source in {"spade/guard.py": GUARD, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(source), encoding="utf-8")
        entries = [("import spade", "spade", None), ("from spade import Handle", "spade", "Handle")]
        others = Others(
            among=("garden", "water").__contains__,
            releases=lambda name: (RELEASES[:3], RELEASES) if name in ("garden", "water") else ((), ()),
            module=("garden", "garden.tools").__contains__,
        )
        found: Taken = {}
        for take in takes_of(str(tmp_path), ["spade"], ("spade", "1.0"), entries, required=required, others=others):
            what = ":".join(filter(None, (take.module, take.name)))
            condition = f" if {' and '.join(take.needs)}" if take.needs else ""
            found.setdefault(f"{what}{condition}", []).extend(take.entries)
        return {what: statements for what, statements in found.items() if not what.startswith("packaging")}

    return tell


def test_what_is_taken_belongs_to_the_statement_that_loads_it(taken: Callable[..., Taken]) -> None:
    lazy = "def __getattr__(name):\n    from .handles import Handle\n    return Handle\n"
    files = {
        "spade/__init__.py": f"import garden\n{lazy}",
        "spade/handles.py": "from garden import Bed\nclass Handle: ...\n",
    }
    found = taken(files, required=("garden",))
    assert found["garden"] == ["from spade import Handle", "import spade"]
    assert "import spade" not in found.get("garden:Bed", ())


def test_a_package_that_nobody_requires_is_taken_all_the_same(taken: Callable[..., Taken]) -> None:
    assert list(taken({"spade/__init__.py": "import garden.tools\n"})) == ["garden.tools"]


@pytest.mark.parametrize(
    ("guard", "needs"),
    [
        ("is_there('garden')", "garden"),  # a package that may be absent
        ("is_newer('garden', '1.5')", "garden>=1.5"),
        ("is_newer('garden', '1.2')", "garden>=1.5"),
        ("is_older('garden', '1.0')", "garden<1.0"),
        ("is_newer('garden', '1.0') and is_older('garden', '2.0')", "garden>=1.0,<2.0"),
        ("new_garden and is_newer('water', '1.0')", "garden>=1.5 and water>=1.0"),
        ("new_garden and has_water", "garden>=1.5 and water"),
    ],
)
def test_versions_on_which_it_depends_are_told(taken: Callable[..., Taken], guard: str, needs: str) -> None:
    both = "new_garden = is_newer('garden', '1.5')\nhas_water = is_there('water')\nif has_water:\n    import water\n"
    source = f"from .guard import is_newer, is_older, is_there\n{both}if {guard}:\n    from garden import Bed\n"
    assert [what for what in taken({"spade/__init__.py": source}) if "Bed" in what] == [f"garden:Bed if {needs}"]


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    from garden import Bed\nexcept ImportError:\n    Bed = None\n",
        "import os\nif os.path.exists('x'):\n    from garden import Bed\n",
        "def later():\n    from garden import Bed\n",
    ],
)
def test_what_may_not_happen_is_left_out(taken: Callable[..., Taken], source: str) -> None:
    assert "garden:Bed" not in taken({"spade/__init__.py": f"import garden\n{source}"}, required=("garden",))


def test_what_an_import_cannot_do_without_is_there_when_its_version_is_asked(taken: Callable[..., Taken]) -> None:
    # LLaMA-Factory 0.9.3 requires transformers by two lines with markers, and takes a missing version for an old one
    old = "from importlib.metadata import version as installed\nfrom packaging import version\ndef is_old():\n"
    old += "    try:\n        now = version.parse(installed('garden'))\n"
    old += "    except Exception:\n        now = version.parse('0.0')\n    return now < version.parse('1.5')\n"
    source = "import garden\nfrom .age import is_old\nif is_old():\n    from garden import Bed\n"
    assert list(taken({"spade/__init__.py": source, "spade/age.py": old})) == ["garden:Bed if garden<1.5"]


def test_attributes_of_modules_are_taken_too(taken: Callable[..., Taken]) -> None:
    source = "import garden.tools\nrake = garden.tools.Rake\nlength = garden.Bed.length\n"
    found = taken({"spade/__init__.py": source}, required=("garden",))
    assert {"garden.tools:Rake", "garden:Bed"} <= found.keys() and "garden.Bed:length" not in found


def test_what_the_code_demands_itself_is_a_requirement(taken: Callable[..., Taken]) -> None:
    checks = "def require_version(text): ...\ndef check(name):\n    require_version({'garden': 'garden>=1.5'}[name])\n"
    source = (
        "from .checks import check\nfrom .guard import is_newer\nif is_newer('garden', '1.0'):\n    check('garden')\n"
    )
    found = taken({"spade/__init__.py": source, "spade/checks.py": checks})
    assert found == {"garden>=1.5 if garden>=1.0": ["from spade import Handle", "import spade"]}


def test_what_it_demands_by_a_function_of_another_package_is_one_too(taken: Callable[..., Taken]) -> None:
    # LLaMA-Factory calls the function of transformers, unless a variable of the environment forbids it
    source = "import os\nfrom garden.tools import require_version\ndef check_all():\n"
    source += "    if os.environ.get('NO_CHECK', '0').lower() in ('1', 'true'):\n        print('no check')\n    else:\n"
    source += "        require_version('water>=1.5', 'To fix: pip install water')\ncheck_all()\n"
    assert taken({"spade/__init__.py": source}).keys() == {"garden.tools:require_version", "water>=1.5"}
