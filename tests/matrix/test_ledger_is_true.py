"""Entries of the ledger, drawn at random, against the released files: by Python's own tables of symbols."""

import random
import symtable
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from harvesting.kept import Kept
from harvesting.releases import released
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.matrix import Matrix, Released

#: Packages with small wheels, from which five releases each are drawn.
PACKAGES = ("accelerate", "datasets", "huggingface-hub", "peft", "trl")
SEED = 20261122
#: Entries of each kind that are drawn of a release.
EACH = 8


def bound(module: symtable.SymbolTable) -> set[str]:
    """The names that a module binds."""
    symbols = module.get_symbols()
    return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported() or one.is_namespace()}


def source_of(sources: ZipFile, module: str) -> str | None:
    """The text of a module; None when the release has no file of it."""
    names = [module.replace(".", "/") + ending for ending in ("/__init__.py", ".py")]
    return next((sources.read(name).decode() for name in names if name in sources.namelist()), None)


def draws(package: Released, version: str, chance: random.Random) -> Iterator[tuple[str, str, bool]]:
    """Modules and names, some that the ledger says a release has and some that it says it has not."""
    modules = [m for m in package.subjects("offers") if m != "*" and package.listed("offers", m, version) is True]
    for there in (True, False):
        for _ in range(EACH):
            module = chance.choice(modules)
            names = set(package.items("offers", module, version)) if there else ever(package, module)
            names = {name for name in names if package.offers(module, name, version) is there}
            if names:
                yield module, chance.choice(sorted(names)), there


def ever(package: Released, module: str) -> set[str]:
    """The names that a module has in any release that was read."""
    read = [release.version for release in package.releases if release.read]
    found = [package.items("offers", module, version) for version in read]
    return {name for items in found if isinstance(items, tuple) for name in items}


def parameters_of(text: str, name: str) -> set[str] | None:
    """The parameters of a function or of a class's ``__init__``, from its symbols; None when it is not there once."""
    tables = [child for child in symtable.symtable(text, "m", "exec").get_children() if child.get_name() == name]
    if len(tables) == 1 and tables[0].get_type() == "class":
        tables = [child for child in tables[0].get_children() if child.get_name() == "__init__"]
    if len(tables) != 1 or not isinstance(tables[0], symtable.Function):
        return None
    return set(tables[0].get_parameters())


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_entries_are_what_the_released_files_say(matrix: Matrix, tmp_path: Path, name: str):
    package = matrix.ledger.package(name)
    assert package is not None and package.by_names
    chance, kept = random.Random(f"{SEED} {name}"), Kept(tmp_path)
    releases = {str(release.version): release for release in released(kept.files(name))}
    checked = 0
    for version in chance.sample([release.version for release in package.releases if release.read], 5):
        metadata = kept.metadata(name, releases[version], sources=True)
        assert metadata is not None
        said = [Requirement(text) for text in HeaderParser().parsestr(metadata[0]).get_all("Requires-Dist", [])]
        required = package.items("requires", "*", version)
        assert {(canonicalize_name(one.name), one.specifier) for one in said if "extra" not in str(one.marker)} == {
            (Requirement(text).name, Requirement(text).specifier) for text in required
        }
        with ZipFile(kept.work / "sources" / name / f"{version}.zip") as sources:
            for module, symbol, there in draws(package, version, chance):
                text = source_of(sources, module)
                assert text is not None, (version, module)
                found = symbol in bound(symtable.symtable(text, module, "exec"))
                lazy = there and (symbol in text or "import *" in text)
                assert (found or lazy) is there, (version, module, symbol)
                checked += 1
            places = [p for p in package.subjects("parameters") if package.listed("parameters", p, version) is True]
            for place in chance.sample(places, EACH):
                module, _, qualified = place.partition(":")
                text = source_of(sources, module)
                parameters = None if text is None or "." in qualified else parameters_of(text, qualified)
                items = package.items("parameters", place, version)
                if parameters is not None and not any(item.startswith("&") for item in items):
                    own = {item for item in items if not item.startswith("*")}
                    assert own <= parameters and len(parameters - own) <= 3, (version, place)  # self, *args, **kwargs
                    checked += 1
    assert checked >= 45
