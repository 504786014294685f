"""What torch has for a GPU, by torch's own rule of which code runs where."""

from known import answer as told
from known import following
from observing import shipped
from tables import rows

from envdoctor.facts import Unknown
from envdoctor.matrix import kernels

MATRIX = shipped()


@rows("cc archs found")
def test_code_runs_on_its_major_and_ptx_on_everything_later(cc, archs, found):
    assert kernels(cc, archs, "12.8", MATRIX) == found


@rows("cc archs cuda found")
def test_integrated_gpus_are_exceptions(cc, archs, cuda, found):
    assert kernels(cc, archs, cuda, MATRIX) == found


@rows("cc given found")
def test_what_a_build_has_for_a_gpu(cc, given, found):
    (gpu,) = following(gpu=[{"cc": cc}], **given).value("gpu")
    assert (told(gpu["kernels"]) if found is Unknown else [gpu["kernels"], gpu["gap"]]) == found


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
