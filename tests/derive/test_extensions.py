"""Whether extensions fit this system, this Python and this torch, and whether they can be built here."""

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


DEEPSPEED = {"pkg__deepspeed": "0.17.6", "recipe__zero_stage": 2}
NO_OFFLOAD = {"recipe__offload_optimizer": "absent"}
CPU = {"recipe__offload_optimizer": "cpu"}


@pytest.mark.parametrize(
    ("facts", "ops"),
    [
        ({**DEEPSPEED, **CPU}, ("cpu_adam",)),
        ({**DEEPSPEED, "recipe__offload_optimizer": "nvme", "recipe__optimizer": "adamw_torch"}, ("cpu_adam",)),
        ({**DEEPSPEED, **CPU, "recipe__optimizer": "Lion"}, ("cpu_lion",)),
        ({**DEEPSPEED, **CPU, "recipe__optimizer": "Adagrad"}, ("cpu_adagrad",)),
        ({**DEEPSPEED, **NO_OFFLOAD, "recipe__optimizer": "AdamW"}, ("fused_adam",)),
        ({**DEEPSPEED, "recipe__offload_optimizer": "none", "recipe__optimizer": "AdamW"}, ("fused_adam",)),
        ({**DEEPSPEED, **NO_OFFLOAD, "recipe__optimizer": "adamw_torch"}, ()),
        ({**DEEPSPEED, **NO_OFFLOAD, "recipe__framework": "openrlhf"}, ("fused_adam",)),
        ({**DEEPSPEED, **CPU, "build__compiled": ("cpu_adam",)}, ()),
        ({**DEEPSPEED, **CPU, "build__compiled": ("fused_adam",)}, ("cpu_adam",)),
        ({"pkg__deepspeed": "absent", "recipe__zero_stage": 2}, ()),
        ({"pkg__deepspeed": "0.17.6", "recipe__zero_stage": "absent"}, ()),
        ({}, Unknown),
        ({"pkg__deepspeed": "0.17.6"}, Unknown),
        (DEEPSPEED, Unknown),
        ({**DEEPSPEED, **NO_OFFLOAD}, Unknown),
    ],
)
def test_deepspeed_and_the_optimizer_decide_which_op_is_compiled(facts: dict[str, Any], ops: Any) -> None:
    given = {key: list(value) if isinstance(value, tuple) else value for key, value in facts.items()}
    assert answer(following(**given).value("build.needed")) == ops


@pytest.mark.parametrize(
    ("toolkit", "cuda", "fit"),
    [
        ("12.4", "12.4", "same"),
        ("12.4.1", "12.4", "same"),
        ("12.8", "12.4", "minor"),
        ("11.8", "12.4", "major"),
        ("12.4", "absent", Unknown),  # a CPU build has no CUDA to compare
        ("absent", "12.4", Unknown),
    ],
)
def test_the_toolkit_is_compared_with_the_cuda_of_torch(toolkit: str, cuda: str, fit: Any) -> None:
    assert answer(following(cuda__toolkit=toolkit, torch__cuda=cuda).value("cuda.toolkit_fits")) == fit


@pytest.mark.parametrize(
    ("torch", "gcc"),
    [
        ("2.0.1+cu118", "5"),
        ("2.1.0", "7"),
        ("2.2.1", "7"),
        ("2.2.2", "9"),
        ("2.13.0+cu130", "9"),
        ("2.14.0+cu130", "11"),
        ("2.15.0", "11"),
        # pre-releases and releases outside the table
        ("2.14.0a0+872d972e41.nv26.08", Unknown),
        ("2.16.0", Unknown),
        ("1.12.1", Unknown),
        ("2.14.0.dev20260601+cu130", Unknown),
    ],
)
def test_the_headers_ask_for_a_gcc(torch: str, gcc: Any) -> None:
    assert answer(following(pkg__torch=torch).value("build.gcc_min")) == gcc


@pytest.mark.parametrize(
    ("gcc", "toolkit", "torch", "fit"),
    [
        ("12", "12.4", "2.6.0", "yes"),
        ("13.2", "12.4", "2.6.0", "yes"),
        ("14", "12.4", "2.6.0", "too-new"),
        ("8", "12.4", "2.6.0", "too-old"),
        ("10.5", "13.0", "2.14.0", "too-old"),
        ("11", "13.0", "2.14.0", "yes"),
        ("15", "13.0", "2.14.0", "yes"),
        ("16", "13.0", "2.14.0", "too-new"),
        ("16", "absent", "2.14.0", "yes"),
        # one bound is enough to refuse, and not to accept
        ("14", "12.4", None, "too-new"),
        ("12", "12.4", None, Unknown),
        ("8", None, "2.6.0", "too-old"),
        ("12", None, "2.6.0", Unknown),
        ("12", "99.0", "2.6.0", Unknown),
    ],
)
def test_gcc_lies_between_torchs_headers_and_nvcc(gcc: str, toolkit: Any, torch: Any, fit: Any) -> None:
    known = {"cuda__toolkit": toolkit, "pkg__torch": torch}
    given = {key: value for key, value in known.items() if value is not None}
    assert answer(following(build__gcc=gcc, **given).value("build.gcc_fits")) == fit


def test_a_given_bound_is_used() -> None:
    found = following(build__gcc="14", build__gcc_max="15", build__gcc_min="9")
    assert found.value("build.gcc_fits") == "yes"
