"""Withdrawn releases and binaries for NumPy 1, by the tables."""

from collections.abc import Mapping

import pytest
from observing import shipped
from rooms import computing

from envdoctor.facts import ABSENT, Records, Unknown

numpy_binary = computing("numpy_binary")
withdrawn = computing("withdrawn")


def rows(table: str, kind: str) -> list[Mapping[str, str]]:
    return list(shipped().rows(table, kind))


@pytest.fixture
def records(matrix):
    """The records of a derivation over these versions; packages that are not given are absent, or unknown."""

    def run(module, key, given, otherwise=ABSENT):
        def value(name):
            return given.get(name.removeprefix("pkg."), otherwise)

        found = module(value, matrix)[key].value
        assert isinstance(found, Records)
        return list(found), found.incomplete

    return run


@pytest.mark.parametrize(
    "row", rows("withdrawn-releases", "release"), ids=lambda row: f"{row['package']}-{row['version']}"
)
def test_each_withdrawn_release_is_told_and_its_replacement_is_not(records, row):
    (item,), incomplete = records(withdrawn, "withdrawn", {row["package"]: row["version"]})
    assert (item["version"], item["reason"], item["instead"]) == (row["version"], row["reason"], row["instead"])
    assert incomplete is None
    assert records(withdrawn, "withdrawn", {row["package"]: row["instead"]}) == ([], None)


def test_a_local_tag_changes_nothing(records):
    (item,), _ = records(withdrawn, "withdrawn", {"torchvision": "0.15.0+cu118"})
    assert item["version"] == "0.15.0+cu118"


@pytest.mark.parametrize(("kind", "told"), [("conda", 0), ("dist-info", 1)])
def test_what_pypi_withdrew_says_nothing_of_a_build_of_conda(records, kind, told):
    dists = Records(({"name": "torchvision", "kind": kind},))
    items, _ = records(withdrawn, "withdrawn", {"torchvision": "0.15.0", "dist": dists})
    assert len(items) == told


def test_unknown_versions_leave_the_list_open(records):
    items, incomplete = records(withdrawn, "withdrawn", {"numpy": "2.4.0"}, Unknown("not given"))
    assert [item["package"] for item in items] == ["numpy"]
    assert incomplete is not None and incomplete.startswith("the version of ")


@pytest.mark.parametrize("row", rows("numpy-2-builds", "package"), ids=lambda row: row["name"])
def test_the_first_release_for_numpy_2_is_the_bound(records, row):
    found = records(numpy_binary, "numpy_binary", {row["name"]: row["last"]})
    assert found == ([{"package": row["name"], "version": row["last"], "first": row["first"]}], None)
    assert records(numpy_binary, "numpy_binary", {row["name"]: row["first"]}) == ([], None)


@pytest.mark.parametrize("marks", [{"kind": "conda"}, {"kind": "dist-info", "installer": "conda"}])
def test_what_conda_installed_is_left_out(records, marks):
    dists = Records(({"name": "pandas", "version": "2.2.1", **marks},))
    assert records(numpy_binary, "numpy_binary", {"pandas": "2.2.1", "dist": dists}) == ([], None)


def test_a_package_of_unknown_version_leaves_the_list_open(records):
    found = records(numpy_binary, "numpy_binary", {"pandas": Unknown("two metadata directories")})
    assert found == ([], "the version of pandas is not known")
