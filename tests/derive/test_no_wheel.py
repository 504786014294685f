"""Releases without a wheel for an environment that is known by versions alone, by the shipped ledger and table."""

from known import derived, given
from observing import shipped
from tables import rows

from envdoctor.facts import Records, Unknown
from envdoctor.matrix import Ledger

LINUX = {"python.version": "3.12.3", "os.platform": "linux", "os.arch": "x86_64"}
LIBC = {"os.libc": "glibc", "os.libc_version": "2.35"}
WINDOWS = {"python.version": "3.12.3", "os.platform": "windows", "os.arch": "x86_64"}


def records(values, complete=("pkg",)):
    facts = derived(given(values, shipped().registry, complete), shipped())
    found = facts.value("no_wheel")
    assert isinstance(found, Records), found
    return found


def told(values):
    found = records(values)
    return {item["package"]: [item["lacks"], item["older"], item["newer"]] for item in found}


@rows("package version more expected")
def test_what_a_release_lacks(package, version, more, expected):
    others = told({**LINUX, **LIBC, f"pkg.{package}": version, **more})
    found = others.pop(package, None)
    assert (found and [found[0], ...] if expected and ... in expected else found) == expected
    assert others == {} or "python.version" in more  # torch 2.6 has no wheel there either


def test_windows_has_no_wheels_of_some():
    found = told({**WINDOWS, "pkg.vllm": "0.20.2", "pkg.triton": "3.2.0", "pkg.torch": "2.6.0", "pkg.numpy": "2.1.0"})
    assert {name: lacks for name, (lacks, *_) in found.items()} == {"vllm": "Windows", "triton": "Windows"}


def test_what_is_not_known_leaves_the_list_open():
    found = records({"pkg.torch": "2.4.1"})
    assert not found.items and found.incomplete is not None
    found = records({**LINUX, **LIBC, "pkg.torch": "2.4.1"}, complete=())
    assert found.incomplete is not None and "not known" in found.incomplete
    found = records({**LINUX, **LIBC, "pkg.torch": "2.4.1"})
    assert found.incomplete is None


def test_other_interpreters_are_not_judged():
    facts = given({**LINUX, "pkg.torch": "2.4.1", "python.implementation": "pypy"}, shipped().registry, ["pkg"])
    assert isinstance(derived(facts, shipped()).value("no_wheel"), Unknown)


def test_the_table_of_wheels_names_releases_of_the_ledger():
    for row in shipped().rows("torch-wheels"):
        package = Ledger(shipped().ledger.home).package(row["package"])
        assert package is not None
        listed = {release.version for release in package.releases}
        ends = [part.lstrip("<>=") for part in row["versions"].split(",")]
        assert listed.issuperset(ends)
        assert package.items("wheels", "*", ends[-1]) == ("sdist",), "its wheels are on PyPI"
