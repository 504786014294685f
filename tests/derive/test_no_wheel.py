"""Releases without a wheel for an environment that is known by versions alone, by the shipped ledger and table."""

import pytest
from known import derived, given
from observing import shipped

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.matrix import Ledger

LINUX = {"python.version": "3.12.3", "os.platform": "linux", "os.arch": "x86_64"}
LIBC = {"os.libc": "glibc", "os.libc_version": "2.35"}
INSTALLED = [{"name": "torch", "version": "2.4.1", "kind": "dist-info", "active": True}]
WINDOWS = {"python.version": "3.12.3", "os.platform": "windows", "os.arch": "x86_64"}


def records(values, complete=("pkg",)):
    facts = derived(given(values, shipped().registry, complete), shipped())
    found = facts.value("no_wheel")
    assert isinstance(found, Records), found
    return found


def told(values):
    found = records(values)
    return {item["package"]: (item["lacks"], item["older"], item["newer"]) for item in found}


@pytest.mark.parametrize(
    ("package", "version", "more", "expected"),
    [
        # Python and system
        ("torch", "2.4.1", {"python.version": "3.13.1"}, ("Python 3.13 on Linux x86_64", ABSENT, "2.5.0")),
        ("torch", "2.4.1", {}, None),
        ("vllm", "0.20.2", {"os.libc_version": "2.31"}, ("glibc 2.31", "0.19.1", "0.21.0")),
        ("vllm", "0.20.2", {"os.arch": "ppc64le"}, ("Linux ppc64le", ABSENT, ABSENT)),
        ("tokenizers", "0.13.3", {}, ("Python 3.12 on Linux x86_64", ABSENT, "0.14.0")),
        ("bitsandbytes", "0.44.0", {"os.arch": "aarch64"}, ("Linux aarch64", ABSENT, "0.46.0")),
        ("transformers", "4.30.0", {"python.version": "3.13.1"}, None),
        ("deepspeed", "0.16.5", {}, None),  # its wheels are for Windows, its source is for Linux
        ("psutil", "5.7.0", {}, None),
        ("vllm", "0.20.2", {"os.platform": "windows"}, ("Windows", ABSENT, ABSENT)),
        # the torch that it was compiled for
        ("xformers", "0.0.28.post1", {"pkg.torch": "2.4.1+cu121"}, None),
        ("xformers", "0.0.28.post1", {"pkg.torch": "2.4.0"}, None),
        ("xformers", "0.0.28.post1", {"pkg.torch": "2.6.0+cu124"}, ("torch 2.6", ABSENT, "0.0.29.post2")),
        ("vllm", "0.8.5", {"pkg.torch": "2.7.0"}, ("torch 2.7", ABSENT, "0.9.0")),
        ("flash-attn", "2.7.4.post1", {"pkg.torch": "2.7.1+cu126"}, ("torch 2.7", ABSENT, "2.8.0.post2")),
        ("flash-attn", "2.8.3", {"pkg.torch": "2.8.0+cu128"}, None),
        ("flash-attn", "2.8.3", {"pkg.torch": "2.12.0+cu130"}, ("torch 2.12", ABSENT, ABSENT)),
        ("mamba-ssm", "2.3.1", {"pkg.torch": "2.8.0+cu118"}, ("torch 2.8 for CUDA 11", ABSENT, ABSENT)),
        ("causal-conv1d", "1.5.0.post8", {"pkg.torch": "2.7.1+cu126"}, ("torch 2.7", ABSENT, "1.5.1")),
        ("flash-attn", "2.8.3", {"pkg.torch": "2.5.0a0+872d972e41.nv24.08"}, None),
        ("flash-attn", "2.8.3", {"pkg.torch": None}, None),
        # Python of wheels that are not on PyPI; the CUDA of a torch without a tag is that of PyPI
        (
            "flash-attn",
            "2.8.3",
            {"pkg.torch": "2.6.0+cu124", "python.version": "3.14.1"},
            ("torch 2.6 for CUDA 12 on x86_64 with Python 3.14", ...),
        ),
        ("mamba-ssm", "2.3.1", {"pkg.torch": "2.8.0"}, None),
        ("mamba-ssm", "2.3.1", {"pkg.torch": "2.8.0", "torch.cuda": "13.0"}, ("torch 2.8 for CUDA 13", ...)),
        # builds and versions that the ledger does not list, and installed files, which speak for themselves
        ("torch", "2.4.1+cu121", {"python.version": "3.13.1"}, None),
        ("vllm", "0.20.3.dev1", {"python.version": "3.13.1"}, None),
        ("xformers", "0.0.28.post99", {"python.version": "3.13.1"}, None),
        ("torch", "2.4.1", {"python.version": "3.13.1", "dist": INSTALLED}, None),
    ],
)
def test_what_a_release_lacks(package, version, more, expected):
    others = told({**LINUX, **LIBC, f"pkg.{package}": version, **more})
    found = others.pop(package, None)
    assert (found and (found[0], ...) if expected and ... in expected else found) == expected
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
