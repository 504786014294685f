"""What torch has for a GPU, by torch's own rule of which code runs where."""

import pytest
from known import answer as told
from known import following
from observing import shipped

from envdoctor.facts import ABSENT, Unknown
from envdoctor.matrix import kernels

MATRIX = shipped()


RUNS, PTX, OLDER, NEWER, BETWEEN = (
    ("sass", ABSENT),
    ("ptx", ABSENT),
    *((("none", gap)) for gap in ("older", "newer", "between")),
)
WINDOWS, ARM = {"os__platform": "windows"}, {"os__arch": "aarch64"}


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
    ("cc", "given", "found"),
    [
        # the tables know the list of a release
        ("6.0", {"pkg__torch": "2.7.1+cu126"}, RUNS),
        ("6.0", {"pkg__torch": "2.8.0+cu128"}, OLDER),
        ("7.0", {"pkg__torch": "2.10.0+cu128"}, RUNS),
        ("7.0", {"pkg__torch": "2.11.0+cu130"}, OLDER),
        ("12.0", {"pkg__torch": "2.6.0+cu124"}, NEWER),
        ("12.0", {"pkg__torch": "2.9.1+cu128"}, RUNS),
        ("9.0", {"pkg__torch": "2.0.1+cu117"}, NEWER),
        # the list in torch's own library comes before the tables, and settles it where nothing tells the CUDA of torch
        ("12.0", {"pkg__torch": "2.6.0+cu124", "torch__arch_list": ["sm_90", "compute_90"]}, PTX),
        ("6.1", {"torch__arch_list": ["sm_75", "sm_90"]}, OLDER),
        ("9.0", {"torch__arch_list": ["sm_75", "sm_90"]}, RUNS),
        ("12.0", {"torch__arch_list": ["sm_90", "compute_90"]}, PTX),
        ("8.7", {"torch__arch_list": ["sm_80"]}, Unknown),  # from CUDA 13.2 on it runs there
        ("9.0", {"torch__arch_list": []}, Unknown),
        # machines are told apart
        ("7.5", {"pkg__torch": "2.11.0+cu130"}, RUNS),
        ("7.5", {"pkg__torch": "2.11.0+cu130", **ARM}, OLDER),
        ("11.0", {"pkg__torch": "2.11.0+cu130", **ARM}, RUNS),
        ("8.7", {"pkg__torch": "2.11.0+cu130", **ARM}, BETWEEN),
        # the wheel index has builds for aarch64 of their own
        ("11.0", {"pkg__torch": "2.9.1+cu128", **ARM}, BETWEEN),
        ("10.0", {"pkg__torch": "2.9.1+cu128", **ARM}, RUNS),
        ("10.0", {"pkg__torch": "2.13.0+cu126", **ARM}, NEWER),
        ("10.0", {"pkg__torch": "2.12.0+cu126", **ARM}, Unknown),
        # Windows builds have a table of their own, and their lists changed on the way
        ("12.0", {"pkg__torch": "2.6.0+cu126", **WINDOWS, "os__arch": "x86_64"}, NEWER),
        ("6.1", {"pkg__torch": "2.9.0+cu130", **WINDOWS}, OLDER),
        ("6.1", {"pkg__torch": "2.8.0+cu128", **WINDOWS}, Unknown),  # what is said of these builds does not agree
        ("6.1", {"pkg__torch": "2.9.0+cu128", **WINDOWS}, Unknown),
        ("5.0", {"pkg__torch": "2.7.1+cu128", **WINDOWS}, RUNS),
        ("6.1", {"pkg__torch": "2.9.1+cu128", **WINDOWS}, OLDER),
        ("7.0", {"pkg__torch": "2.10.0+cu128", **WINDOWS}, RUNS),
        ("7.0", {"pkg__torch": "2.11.0+cu128", **WINDOWS}, OLDER),
        ("6.1", {"pkg__torch": "2.8.0+cu129", **WINDOWS}, OLDER),
        ("5.2", {"pkg__torch": "2.7.1+cu126", **WINDOWS}, RUNS),
        ("5.2", {"pkg__torch": "2.8.0+cu126", **WINDOWS}, OLDER),
        ("5.2", {"pkg__torch": "2.9.0+cu126", **WINDOWS}, RUNS),
        ("12.0", {"pkg__torch": "2.2.2+cu118", **WINDOWS}, NEWER),
        ("8.9", {"pkg__torch": "2.7.1+cu118", **WINDOWS}, RUNS),
        # a CUDA version alone is enough where its builds agree
        ("12.0", {"torch__cuda": "12.6"}, NEWER),
        ("9.0", {"torch__cuda": "12.6"}, RUNS),
        ("7.0", {"torch__cuda": "12.8"}, Unknown),
        # builds that no table has are judged by their compiler alone
        ("3.7", {"pkg__torch": "2.5.0a0+872d972e41.nv24.08", "torch__cuda": "12.6"}, OLDER),
        ("12.0", {"pkg__torch": "2.5.0a0+872d972e41.nv24.08", "torch__cuda": "12.6"}, Unknown),
        ("9.0", {"pkg__torch": "2.5.0a0+872d972e41.nv24.08", "torch__cuda": "12.6"}, Unknown),
        ("7.0", {"pkg__torch": "2.99.0+cu134"}, OLDER),
        # a nightly build has no code for what its compiler does not know
        ("12.0", {"pkg__torch": "2.7.0.dev20250310+cu124"}, NEWER),
        ("10.0", {"pkg__torch": "2.6.0.dev20241112+cu121", **WINDOWS}, NEWER),
        ("9.0", {"pkg__torch": "2.7.0.dev20250310+cu124", "torch__cuda": "12.4"}, Unknown),  # a major that it knows
        ("12.0", {"pkg__torch": "2.7.0.dev20250310+cu128", "torch__cuda": "12.8"}, Unknown),
        ("7.0", {"pkg__torch": "2.7.0.dev20250310+cu128", "torch__cuda": "12.8"}, Unknown),
        ("12.0", {"pkg__torch": "2.7.0a0+gitdeadbee.cu124", "torch__cuda": "12.4"}, Unknown),  # somebody's own
        # a build without CUDA and no torch have no kernels to speak of
        ("9.0", {"pkg__torch": "2.8.0+cpu"}, Unknown),
        ("9.0", {"torch__cuda": "12.6", "pkg__torch": "absent"}, Unknown),
        ("9.0", {}, Unknown),
    ],
)
def test_what_a_build_has_for_a_gpu(cc, given, found):
    (gpu,) = following(gpu=[{"cc": cc}], **given).value("gpu")
    assert (told(gpu["kernels"]) if found is Unknown else (gpu["kernels"], gpu["gap"])) == found


def test_builds_that_differ_are_said_to():
    (gpu,) = following(gpu=[{"cc": "7.0"}], torch__cuda="12.8").value("gpu")
    assert "differ" in gpu["kernels"].reason


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
    gpus = following(gpu=[{"name": name} for name in names]).value("gpu")
    assert {gpu["name"]: gpu["cc"] for gpu in gpus} == names
    (unheard,) = following(gpu=[{"name": "NVIDIA Nonesuch 9000"}]).value("gpu")
    assert isinstance(unheard.get("cc", Unknown("")), Unknown)


def test_what_the_machine_reports_or_a_user_gives_stands():
    (gpu,) = following(gpu=[{"name": "NVIDIA GeForce RTX 4090", "cc": "9.9", "kernels": "none"}]).value("gpu")
    assert (gpu["cc"], gpu["kernels"]) == ("9.9", "none")


def test_memory_that_others_use_is_total_less_free():
    gpus = following(gpu=[{"memory_gib": 80.0, "free_gib": 12.5}, {"memory_gib": 24.0}]).value("gpu")
    assert gpus.items[0]["taken_gib"] == 67.5
    assert "taken_gib" not in gpus.items[1]


def test_the_arch_list_of_a_release_is_a_fact_with_its_table():
    known = following(pkg__torch="2.9.1+cu128")
    assert known.value("torch.arch_list")[-1] == "sm_120"
    assert known.get("torch.arch_list").origin == "table torch-archs (observed)"
    assert following(pkg__torch="2.9.1+cpu").value("torch.arch_list") == ()
    for other in ("2.9.1+rocm6.4", "2.5.0a0+872d972e41.nv24.08"):
        assert told(following(pkg__torch=other).value("torch.arch_list")) is Unknown


def test_every_row_of_the_tables_is_understood():
    for table in ("torch-archs", "torch-archs-windows"):
        for row in MATRIX.rows(table):
            assert kernels("9.0", row["archs"], row["cuda"], MATRIX) is not None, row
