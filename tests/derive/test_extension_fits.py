"""Whether extensions fit this C library, this C++ library, this Python, this machine, this torch and its CUDA."""

from __future__ import annotations

from typing import Any

import pytest
from known import answer, derived, following, given
from observing import shipped

from envdoctor.facts import ABSENT, Fact, Records, Unknown

GLIBC = {"os__libc": "glibc", "os__libc_version": "2.31"}
PYTHON = {"python__version": "3.11.9", "python__implementation": "cpython"}
CXX = {"os__libstdcxx": "3.4.28"}
X86 = {"os__arch": "x86_64", "os__platform": "linux"}


@pytest.mark.parametrize(
    ("item", "facts", "column", "ok"),
    [
        ({"glibc_needs": "2.31"}, GLIBC, "glibc_ok", True),
        ({"glibc_needs": "2.32"}, GLIBC, "glibc_ok", False),
        ({"glibc_needs": "2.4"}, GLIBC, "glibc_ok", True),
        ({"glibc_needs": None}, GLIBC, "glibc_ok", True),
        ({"glibc_needs": "2.17"}, {"os__libc": "musl", "os__libc_version": "1.2"}, "glibc_ok", Unknown),
        ({"glibc_needs": "2.17"}, {}, "glibc_ok", Unknown),
        # a given answer stands where none can be computed
        ({"glibc_ok": False}, {}, "glibc_ok", False),
        ({"glibc_ok": False, "glibc_needs": None}, {}, "glibc_ok", True),
        ({"glibcxx_needs": "3.4.28"}, CXX, "glibcxx_ok", True),
        ({"glibcxx_needs": "3.4.29"}, CXX, "glibcxx_ok", False),
        ({"glibcxx_needs": "3.4.9"}, CXX, "glibcxx_ok", True),
        ({"glibcxx_needs": None}, CXX, "glibcxx_ok", True),
        ({"glibcxx_needs": "3.4.28"}, {}, "glibcxx_ok", Unknown),
        # one module for this Python, and one file for this machine, is enough
        ({"python_tag": "cp311"}, PYTHON, "python_ok", True),
        ({"python_tag": "cp310"}, PYTHON, "python_ok", False),
        ({"python_tag": "cp310, cp311"}, PYTHON, "python_ok", True),
        ({"python_tag": "cp31"}, PYTHON, "python_ok", False),
        ({"python_tag": None}, PYTHON, "python_ok", True),
        ({"arch": "aarch64"}, X86, "arch_ok", False),
        ({"arch": "aarch64"}, {**X86, "os__arch": "aarch64"}, "arch_ok", True),
        ({"arch": "aarch64, x86_64"}, X86, "arch_ok", True),
        ({"arch": None}, X86, "arch_ok", True),
        ({"arch": "x86_64"}, {**X86, "os__arch": "ppc64le"}, "arch_ok", Unknown),
        ({"arch": "x86_64"}, {**X86, "os__platform": "darwin"}, "arch_ok", Unknown),
        ({"arch": "x86_64"}, {"os__platform": "linux"}, "arch_ok", Unknown),
        # a patch release of torch is the same torch
        ({"built_torch": "2.8"}, {"pkg__torch": "2.8.0+cu128"}, "built_ok", True),
        ({"built_torch": "2.8.0"}, {"pkg__torch": "2.8.1"}, "built_ok", True),
        ({"built_torch": "2.8"}, {"pkg__torch": "2.9.1+cu130"}, "built_ok", False),
        ({"built_torch": "2.1"}, {"pkg__torch": "2.10.0"}, "built_ok", False),
        ({"built_torch": "2.5"}, {"pkg__torch": "2.5.0a0+872d972e41.nv24.08"}, "built_ok", True),
        ({"built_torch": None}, {"pkg__torch": "2.8.0"}, "built_ok", ABSENT),
        ({"built_torch": "2.8"}, {"pkg__torch": None}, "built_ok", Unknown),
        ({"built_torch": "2.8"}, {}, "built_ok", Unknown),
        # one major of CUDA serves all its minor versions
        ({"built_cuda": "12"}, {"torch__cuda": "12.8"}, "cuda_ok", True),
        ({"built_cuda": "12.3"}, {"torch__cuda": "12.8"}, "cuda_ok", True),
        ({"built_cuda": "12"}, {"torch__cuda": "13.0"}, "cuda_ok", False),
        ({"built_cuda": "11.8"}, {"torch__cuda": "12.1"}, "cuda_ok", False),
        ({"built_cuda": "12"}, {"torch__cuda": None}, "cuda_ok", False),
        ({"built_cuda": None}, {"torch__cuda": "13.0"}, "cuda_ok", ABSENT),
        ({"built_cuda": None}, {"torch__cuda": None}, "cuda_ok", ABSENT),
        ({}, {"pkg__torch": "2.8.0", "torch__cuda": "12.8"}, "cuda_ok", Unknown),
        ({"built_cuda": "12"}, {}, "cuda_ok", Unknown),
    ],
)
def test_what_an_extension_needs(item: dict[str, Any], facts: dict[str, Any], column: str, ok: Any) -> None:
    (found,) = following(extension=[item], **facts).value("extension")
    assert answer(found.get(column, Unknown(""))) is ok


def test_a_version_that_a_file_spells_oddly_decides_nothing() -> None:
    facts = given({"os.libstdcxx": "3.4.28"}, shipped().registry)
    facts.add(Fact("extension", Records(({"glibcxx_needs": "odd"},)), "x.so", "environment"))
    (found,) = derived(facts, shipped()).value("extension")  # type: ignore[misc,union-attr]
    assert answer(found["glibcxx_ok"]) is Unknown
