"""What torch has for a GPU, by torch's own rule of which code runs where."""

from __future__ import annotations

import pytest
from known import derived, given, keyed
from observing import shipped

from envdoctor.facts import ABSENT, Unknown
from envdoctor.knowledge import kernels

MATRIX = shipped()


def facts(**values):
    """Derived facts; two underscores stand for a dot."""
    return derived(given(keyed(**values), MATRIX.registry), MATRIX)


def answer(cc, **given):
    (gpu,) = facts(gpu=[{"cc": cc}], **given).value("gpu")
    return gpu["kernels"], gpu["gap"]


@pytest.mark.parametrize(
    ("cc", "archs", "found"),
    [
        ("8.6", ["sm_80"], "sass"),
        ("8.9", ["sm_86"], "sass"),
        ("8.0", ["sm_86"], "none"),
        ("9.0", ["sm_80", "sm_86"], "none"),
        ("12.1", ["sm_120"], "sass"),
        ("10.3", ["sm_100"], "sass"),
        ("12.0", ["sm_100"], "none"),
        ("9.0", ["sm_90a"], "sass"),
        ("10.3", ["sm_100a"], "none"),
        ("10.3", ["sm_100f"], "sass"),
        ("12.0", ["sm_90", "compute_90"], "ptx"),
        ("8.9", ["compute_90"], "none"),
        ("12.0", ["compute_90a"], "none"),
        ("10.3", ["compute_100f"], "ptx"),
        ("11.0", ["compute_100f"], "none"),
        ("8.9", ["compute_80", "sm_86"], "sass"),
        ("12.0", ["sm_37", "sm_90", "compute_37"], "none"),
        ("12.0", ["sm_37", "sm_90", "compute_50"], "ptx"),
        ("9.0", [], "none"),
        ("9.0", ["gfx90a"], None),
        ("Hopper", ["sm_90"], None),
    ],
)
def test_code_runs_on_its_major_and_ptx_on_everything_later(cc, archs, found):
    assert kernels(cc, archs, "12.8", MATRIX) == found


@pytest.mark.parametrize(
    ("cc", "archs", "cuda", "found"),
    [
        ("8.7", ["sm_80", "sm_86"], "13.0", "none"),
        ("8.7", ["sm_80"], "13.2", "sass"),
        ("8.7", ["sm_80"], None, "none"),
        ("8.7", ["sm_87"], "12.6", "sass"),
        ("8.9", ["sm_87"], "12.6", "none"),
        ("7.2", ["sm_70"], "12.6", "none"),
        ("5.3", ["sm_50"], "11.8", "none"),
        ("6.2", ["sm_60", "sm_61"], "11.8", "none"),
        ("10.1", ["sm_100"], "12.9", "none"),
        ("11.0", ["sm_101"], "12.9", "sass"),
        ("10.1", ["sm_110"], "13.0", "sass"),
        ("10.3", ["sm_101"], "12.9", "none"),
    ],
)
def test_integrated_gpus_are_exceptions(cc, archs, cuda, found):
    assert kernels(cc, archs, cuda, MATRIX) == found


@pytest.mark.parametrize(
    ("torch", "cc", "found"),
    [
        ("2.7.1+cu126", "6.0", ("sass", ABSENT)),
        ("2.8.0+cu128", "6.0", ("none", "older")),
        ("2.10.0+cu128", "7.0", ("sass", ABSENT)),
        ("2.11.0+cu130", "7.0", ("none", "older")),
        ("2.6.0+cu124", "12.0", ("none", "newer")),
        ("2.9.1+cu128", "12.0", ("sass", ABSENT)),
        ("2.0.1+cu117", "9.0", ("none", "newer")),
    ],
)
def test_the_tables_know_the_list_of_a_release(torch, cc, found):
    assert answer(cc, pkg__torch=torch) == found


def test_the_list_in_torchs_own_library_comes_before_the_tables():
    assert answer("12.0", pkg__torch="2.6.0+cu124", torch__arch_list=["sm_90", "compute_90"]) == ("ptx", ABSENT)


def test_the_list_settles_it_where_nothing_tells_the_cuda_of_torch():
    assert answer("6.1", torch__arch_list=["sm_75", "sm_90"]) == ("none", "older")
    assert answer("9.0", torch__arch_list=["sm_75", "sm_90"]) == ("sass", ABSENT)
    assert answer("12.0", torch__arch_list=["sm_90", "compute_90"]) == ("ptx", ABSENT)
    assert isinstance(answer("8.7", torch__arch_list=["sm_80"])[0], Unknown)  # from CUDA 13.2 on it runs there
    assert isinstance(answer("9.0", torch__arch_list=[])[0], Unknown)


def test_machines_are_told_apart():
    assert answer("7.5", pkg__torch="2.11.0+cu130") == ("sass", ABSENT)
    assert answer("7.5", pkg__torch="2.11.0+cu130", os__arch="aarch64") == ("none", "older")
    assert answer("11.0", pkg__torch="2.11.0+cu130", os__arch="aarch64") == ("sass", ABSENT)
    assert answer("8.7", pkg__torch="2.11.0+cu130", os__arch="aarch64") == ("none", "between")


def test_windows_builds_have_a_table_of_their_own():
    assert answer("12.0", pkg__torch="2.6.0+cu126", os__platform="windows", os__arch="x86_64") == ("none", "newer")
    assert answer("6.1", pkg__torch="2.9.0+cu130", os__platform="windows") == ("none", "older")
    for torch in ("2.8.0+cu128", "2.9.0+cu128"):  # what is said of these builds does not agree
        assert isinstance(answer("6.1", pkg__torch=torch, os__platform="windows")[0], Unknown)


@pytest.mark.parametrize(
    ("torch", "cc", "found"),
    [
        ("2.7.1+cu128", "5.0", "sass"),
        ("2.9.1+cu128", "6.1", "older"),
        ("2.10.0+cu128", "7.0", "sass"),
        ("2.11.0+cu128", "7.0", "older"),
        ("2.8.0+cu129", "6.1", "older"),
        ("2.7.1+cu126", "5.2", "sass"),
        ("2.8.0+cu126", "5.2", "older"),
        ("2.9.0+cu126", "5.2", "sass"),
        ("2.2.2+cu118", "12.0", "newer"),
        ("2.7.1+cu118", "8.9", "sass"),
    ],
)
def test_the_lists_of_the_windows_builds_changed_on_the_way(torch, cc, found):
    assert found in answer(cc, pkg__torch=torch, os__platform="windows")


def test_the_wheel_index_has_builds_for_aarch64_of_their_own():
    assert answer("11.0", pkg__torch="2.9.1+cu128", os__arch="aarch64") == ("none", "between")
    assert answer("10.0", pkg__torch="2.9.1+cu128", os__arch="aarch64") == ("sass", ABSENT)
    assert answer("10.0", pkg__torch="2.13.0+cu126", os__arch="aarch64") == ("none", "newer")
    assert isinstance(answer("10.0", pkg__torch="2.12.0+cu126", os__arch="aarch64")[0], Unknown)


def test_a_cuda_version_alone_is_enough_where_its_builds_agree():
    assert answer("12.0", torch__cuda="12.6") == ("none", "newer")
    assert answer("9.0", torch__cuda="12.6") == ("sass", ABSENT)
    assert "differ" in answer("7.0", torch__cuda="12.8")[0].reason


def test_builds_that_no_table_has_are_judged_by_their_compiler_alone():
    vendor = {"pkg__torch": "2.5.0a0+872d972e41.nv24.08", "torch__cuda": "12.6"}
    assert answer("3.7", **vendor) == ("none", "older")
    assert isinstance(answer("12.0", **vendor)[0], Unknown)
    assert isinstance(answer("9.0", **vendor)[0], Unknown)
    assert answer("7.0", pkg__torch="2.99.0+cu134") == ("none", "older")


def test_a_nightly_build_has_no_code_for_what_its_compiler_does_not_know():
    assert answer("12.0", pkg__torch="2.7.0.dev20250310+cu124") == ("none", "newer")
    assert answer("10.0", pkg__torch="2.6.0.dev20241112+cu121", os__platform="windows") == ("none", "newer")
    for torch, cc in [
        ("2.7.0.dev20250310+cu124", "9.0"),  # of a major that the compiler knows
        ("2.7.0.dev20250310+cu128", "12.0"),
        ("2.7.0.dev20250310+cu128", "7.0"),
        ("2.7.0a0+gitdeadbee.cu124", "12.0"),  # somebody's own, perhaps with PTX
    ]:
        assert isinstance(answer(cc, pkg__torch=torch, torch__cuda=f"12.{torch[-1]}")[0], Unknown), torch


def test_a_build_without_cuda_and_no_torch_have_no_kernels_to_speak_of():
    for values in ({"pkg__torch": "2.8.0+cpu"}, {"torch__cuda": "12.6", "pkg__torch": "absent"}, {}):
        assert isinstance(answer("9.0", **values)[0], Unknown)


def test_gpus_known_by_name_get_their_compute_capability():
    names = {
        "Tesla V100-SXM2-32GB": "7.0",
        "NVIDIA GeForce RTX 4090": "8.9",
        "NVIDIA GeForce RTX 3080 Laptop GPU": "8.6",
        "NVIDIA GeForce GTX 1080 Ti": "6.1",
        "NVIDIA GeForce GTX 1660 SUPER": "7.5",
        "NVIDIA H100 80GB HBM3": "9.0",
        "NVIDIA GB10": "12.1",
        "NVIDIA Thor": "11.0",
    }
    gpus = facts(gpu=[{"name": name} for name in names]).value("gpu")
    assert {gpu["name"]: gpu["cc"] for gpu in gpus} == names
    (unheard,) = facts(gpu=[{"name": "NVIDIA Nonesuch 9000"}]).value("gpu")
    assert isinstance(unheard.get("cc", Unknown("")), Unknown)


def test_what_the_machine_reports_stands_before_the_name():
    (gpu,) = facts(gpu=[{"name": "NVIDIA GeForce RTX 4090", "cc": "9.9"}]).value("gpu")
    assert gpu["cc"] == "9.9"


def test_memory_that_others_use_is_total_less_free():
    gpus = facts(gpu=[{"memory_gib": 80.0, "free_gib": 12.5}, {"memory_gib": 24.0}]).value("gpu")
    assert gpus.items[0]["taken_gib"] == 67.5
    assert "taken_gib" not in gpus.items[1]


def test_a_given_answer_stands_where_none_can_be_computed():
    (gpu,) = facts(gpu=[{"cc": "9.0", "kernels": "none"}]).value("gpu")
    assert gpu["kernels"] == "none"


def test_the_arch_list_of_a_release_is_a_fact_with_its_table():
    known = facts(pkg__torch="2.9.1+cu128")
    assert known.value("torch.arch_list")[-1] == "sm_120"
    assert known.get("torch.arch_list").origin == "table torch-archs (observed)"
    assert facts(pkg__torch="2.9.1+cpu").value("torch.arch_list") == ()
    for other in ("2.9.1+rocm6.4", "2.5.0a0+872d972e41.nv24.08"):
        assert isinstance(facts(pkg__torch=other).value("torch.arch_list"), Unknown)


def test_every_row_of_the_tables_is_understood():
    for table in ("torch-archs", "torch-archs-windows"):
        for row in MATRIX.rows(table):
            assert kernels("9.0", row["archs"], row["cuda"], MATRIX) is not None, row
