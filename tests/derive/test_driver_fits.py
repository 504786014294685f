"""How a driver runs the CUDA of torch, by its version, its own word, or a cuda-compat package."""

from __future__ import annotations

import pytest
from known import derived, given, keyed
from observing import shipped

from envdoctor.facts import ABSENT, Unknown

MATRIX = shipped()


def facts(**values):
    """Derived facts; two underscores stand for a dot."""
    return derived(given(keyed(**values), MATRIX.registry), MATRIX)


def fits(cuda, driver=None, **values):
    if driver is not None:
        values["driver__version"] = driver
    return facts(torch__cuda=cuda, **values).value("driver.fits")


@pytest.mark.parametrize(
    ("cuda", "driver", "how"),
    [
        ("12.4", "550.54.14", "native"),
        ("12.4", "550.40.07", "minor"),
        ("12.4", "535.54.03", "minor"),
        ("12.4", "525.60.13", "minor"),
        ("12.4", "520.61.05", "no"),
        ("12.9", "580.65.06", "native"),
        ("13.0", "575.57.08", "no"),
        ("13.0", "580.65.06", "native"),
        ("13.0", "580.00", "native"),
        ("13.2", "580.65.06", "minor"),
        ("13.4", "615.10", "native"),
        ("13.4", "610.43.02", "minor"),
        ("11.8", "450.80.02", "minor"),
        ("11.8", "450.51.06", "no"),
        ("11.8", "535", "native"),
        ("12.7", "570.26", "native"),
        ("10.2", "440.33.01", Unknown("the table has no driver for CUDA 10.2")),
        ("10.2", "525.60.13", "native"),
        ("13.5", "615.10.01", Unknown("the table has no driver for CUDA 13.5")),
        ("13.5", "570.26", "no"),
    ],
)
def test_linux_drivers_are_compared_with_the_table(cuda, driver, how):
    assert fits(cuda, driver, os__platform="linux") == how


@pytest.mark.parametrize(
    ("cuda", "driver", "how"),
    [
        ("12.1", "528.33", "minor"),
        ("12.1", "527.41", "no"),
        ("12.1", "531.14", "native"),
        ("12.8", "576.88", "native"),
        ("13.0", "576.88", "no"),
        ("13.0", "581.29", "native"),
        ("11.8", "452.39", "minor"),
        ("11.8", "451.82", "no"),
    ],
)
@pytest.mark.parametrize("where", [{"os__platform": "windows"}, {"os__platform": "linux", "os__wsl": True}])
def test_windows_and_wsl_have_numbers_of_their_own(cuda, driver, how, where):
    assert fits(cuda, driver, **where) == how


def test_without_a_platform_a_short_number_counts_only_when_both_systems_agree():
    assert isinstance(fits("12.1", "526.98"), Unknown)
    assert fits("12.1", "516.94") == "no"
    assert fits("12.1", "525.60.13") == "minor"


def test_what_the_driver_says_of_itself_comes_first():
    assert fits("12.4", "470.182.03", driver__max_cuda="12.4") == "native"
    assert fits("12.4", "550.54.15", driver__max_cuda="12.2") == "minor"
    assert fits("13.0", "580.00", driver__max_cuda="13.0", os__arch="aarch64") == "native"
    assert fits("12.4", "550.54.15", driver__max_cuda="11.8") == "no"


def test_a_tegra_driver_is_not_measured_with_other_numbers():
    assert "not numbered" in fits("11.4", "35.4.1").reason


def test_a_machine_without_a_driver_and_a_cpu_build_have_no_answer_to_give():
    assert fits("12.4", "absent") is ABSENT
    assert fits("absent", "550.54.15") is ABSENT
    assert isinstance(facts(driver__version="550.54.15").value("driver.fits"), Unknown)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("NVIDIA A100-SXM4-80GB", "compat"),
        ("Tesla T4", "compat"),
        ("Tesla P4", "compat"),
        ("NVIDIA GeForce RTX 3090", "no"),
        ("NVIDIA TITAN RTX", "no"),
    ],
)
def test_cuda_compat_is_for_some_gpus(name, how):
    given = {"driver__compat": "580.65.06", "gpu": [{"name": name}]}
    assert fits("13.0", "535.104.05", **given) == how


def test_cuda_compat_on_other_gpus_is_not_known():
    for gpus in ([{"name": "NVIDIA RTX A6000"}], [{"cc": "8.6"}], []):
        assert isinstance(fits("13.0", "535.104.05", driver__compat="580.65.06", gpu=gpus), Unknown)
    mixed = [{"name": "NVIDIA A100-SXM4-80GB"}, {"name": "NVIDIA GeForce RTX 3090"}]
    assert fits("13.0", "535.104.05", driver__compat="580.65.06", gpu=mixed) == "no"


def test_a_compat_package_that_is_too_old_itself_or_not_needed_changes_nothing():
    gpu = [{"name": "NVIDIA A100-SXM4-80GB"}]
    assert fits("13.0", "535.104.05", driver__compat="570.26", gpu=gpu) == "no"
    assert fits("12.8", "535.104.05", driver__compat="580.65.06", gpu=gpu) == "minor"


def test_a_compat_folder_that_nobody_looked_into_leaves_it_open():
    path = {"env__LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib"}
    assert isinstance(fits("13.0", "535.104.05", **path), Unknown)
    assert fits("13.0", "535.104.05", driver__compat="absent", **path) == "no"
    assert fits("12.8", "535.104.05", **path) == "minor"


def test_library_and_module_are_compared_as_numbers():
    assert facts(driver__version="550.54.15", driver__library="550.54.15").value("driver.mismatch") is False
    assert facts(driver__version="550.54.15", driver__library="550.163.01").value("driver.mismatch") is True
    wsl = facts(driver__version="576.88", driver__library="575.64.01", os__wsl=True)
    assert isinstance(wsl.value("driver.mismatch"), Unknown)


def test_a_driver_that_tells_its_cuda_fits_its_module():
    assert facts(driver__version="550.54.15", driver__max_cuda="12.4").value("driver.mismatch") is False


def test_the_table_is_in_order():
    rows = MATRIX.rows("cuda-drivers")
    keys = [tuple(map(int, row["key"].split("."))) for row in rows]
    assert keys == sorted(keys)
    for system in ("linux", "windows"):
        drivers = [tuple(map(int, row[system].split("."))) for row in rows if system in row]
        assert drivers == sorted(drivers)


@pytest.mark.parametrize(("most", "how"), [("11.4", "no"), ("12.0", "minor"), ("12.4", "native"), ("13.0", "native")])
def test_what_the_driver_itself_says_is_enough(most, how):
    assert fits("12.1", driver__max_cuda=most) == how
