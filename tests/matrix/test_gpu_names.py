"""GPUs by the names that people write: with and without blanks, series and sizes."""

import pytest
from observing import shipped

from envdoctor.matrix import gpu_named

SHIPPED = shipped()
WRITTEN = {
    "8.9": ["4090", "rtx-4090", "RTX_4090", "4090D", "4090-48G", "GeForce-RTX-4090", "4080SUPER", "2*4090", "6000Ada"],
    "8.6": ["3090ti", "RTX3090", "3070Ti", "A10G", "A6000", "RTXA6000", "RTX A4000", "3050"],
    "8.0": ["A100-80G", "A800-SXM4-80GB", "A100 (40GB)", "8x A100"],
    "7.5": ["2080ti", "1660Ti", "TITANRTX", "T4", "Quadro RTX 5000", "T400", "RTX 8000", "T1000"],
    "7.0": ["V100-32G", "TitanV"],
    "6.1": ["1080ti", "1050Ti", "P40", "Quadro P4000"],
    "3.7": ["K80"],
    "12.0": ["5090", "5090D", "5070Ti", "RTX PRO 6000", "RTX PRO 4000 Blackwell"],
    "12.1": ["DGX Spark", "GB10"],
    "9.0": ["H20-96G", "H100 SXM5", "GH200"],
}
# The number of an Ada workstation card is not that of a GeForce.
WRITTEN["8.9"] += ["RTX 2000 Ada", "RTX4000 Ada", "RTX 5000 Ada"]


@pytest.mark.parametrize(("cc", "name"), [(cc, name) for cc, names in WRITTEN.items() for name in names])
def test_a_name_that_people_write_is_known(cc, name):
    found = gpu_named(name, SHIPPED)
    assert found is not None and found.row["cc"] == cc


def test_what_is_called_alike_has_its_own_memory():
    memory = {name: gpu_named(name, SHIPPED).memory for name in ("H20", "NVIDIA H20-3e")}
    assert memory == {"H20": 96, "NVIDIA H20-3e": 141}


@pytest.mark.parametrize(
    ("written", "name", "memory"),
    [
        ("4090 48G", "RTX 4090 48GB", 48),
        ("4090\uff0848G\uff09", "RTX 4090 48GB", 48),
        ("RTX4090-48GB", "RTX 4090 48GB", 48),
        ("4090D 48G", "RTX 4090 D 48GB", 48),
        ("3080 20G", "RTX 3080 20GB", 20),
        ("2080 Ti 22G", "RTX 2080 Ti 22GB", 22),
        ("3080 10G", "RTX 3080 10GB", 10),
        ("A100 40G", "A100 40G", 40),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe", 80),
        ("A6000 48GB", "RTX A6000", 48),
        ("4090", "RTX 4090", 24),
        ("A100", "A100", None),
        ("2080", "RTX 2080", 8),
        ("NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce GTX 1080 Ti", 11),
        ("1080Ti", "GeForce GTX 1080 Ti", 11),
        ("4070TiSuper", "RTX 4070 Ti Super", 16),
    ],
)
def test_a_size_that_is_written_counts_and_stays_in_the_name(written, name, memory):
    found = gpu_named(written, SHIPPED)
    assert (found.name, found.memory) == (name, memory)
    assert gpu_named(found.name, SHIPPED).memory == memory


@pytest.mark.parametrize("name", ["RTX6000", "A1000000", "MI300X", "910B", "M1", "x", ""])
def test_a_name_of_several_or_of_none_is_not_guessed(name):
    assert gpu_named(name, SHIPPED) is None
