"""The driver's libraries by their names, and a cuda-compat package in front of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import observe
from envdoctor.observe.machine.reading import driver_files

USUAL = "/usr/lib/x86_64-linux-gnu"


def library(machine, folder: str, name: str, version: str) -> Path:
    """``libcuda.so.1`` as a link to ``libcuda.so.<version>``, as drivers and packages install it."""
    place = machine.file(f"{folder}/{name}.so.{version}").parent
    (place / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
    return place


@pytest.fixture
def driver(machine):
    """A driver whose module and libraries are of one version."""
    machine.driver("550.54.15")
    library(machine, USUAL, "libcuda", "550.54.15")
    library(machine, USUAL, "libnvidia-ml", "550.54.15")
    return machine


def seen(machine, by_key, **changes):
    facts = by_key(driver_files.observe(machine.request(**changes)))
    return facts["driver.library"], facts["driver.compat"]


def test_without_a_driver_there_is_neither(machine, by_key):
    library(machine, USUAL, "libcuda", "550.54.15")
    assert seen(machine, by_key) == (ABSENT, ABSENT)


def test_a_healthy_driver_has_its_own_library_in_front(driver, by_key):
    assert seen(driver, by_key) == ("550.54.15", ABSENT)


@pytest.mark.parametrize("folder", ["/usr/lib64", "/usr/local/nvidia/lib64", "/usr/lib/aarch64-linux-gnu"])
def test_the_usual_folders_are_searched(machine, by_key, folder):
    machine.driver("535.104.05")
    library(machine, folder, "libnvidia-ml", "535.104.05")
    assert seen(machine, by_key)[0] == "535.104.05"


def test_an_upgraded_library_beside_the_old_module_is_told_by_its_version(machine, by_key):
    machine.driver("550.54.15")
    library(machine, USUAL, "libcuda", "550.163.01")
    library(machine, USUAL, "libnvidia-ml", "550.163.01")
    assert seen(machine, by_key) == ("550.163.01", ABSENT)


def test_a_compat_folder_on_the_library_path_comes_first(driver, by_key):
    place = library(driver, "/usr/local/cuda-13.0/compat", "libcuda", "580.65.06")
    driver.environ["LD_LIBRARY_PATH"] = f"relative::/nowhere:{place}"
    assert seen(driver, by_key) == ("550.54.15", "580.65.06")


def test_a_compat_folder_of_ld_so_conf_comes_before_the_usual_ones(driver, by_key):
    library(driver, "/usr/local/cuda-13.0/compat", "libcuda", "580.65.06")
    driver.file("/etc/ld.so.conf.d/00-compat.conf", "# forward compatibility\n/usr/local/cuda-13.0/compat\n")
    assert seen(driver, by_key) == ("550.54.15", "580.65.06")


def test_a_compat_folder_that_no_loader_looks_into_is_nothing(driver, by_key):
    library(driver, "/usr/local/cuda-13.0/compat", "libcuda", "580.65.06")
    assert seen(driver, by_key)[1] is ABSENT


def test_a_compat_package_of_the_drivers_own_version_changes_nothing(driver, by_key):
    place = library(driver, "/usr/local/cuda-12.4/compat", "libcuda", "550.54.15")
    driver.environ["LD_LIBRARY_PATH"] = str(place)
    assert seen(driver, by_key)[1] is ABSENT


def test_a_compat_libcuda_mounted_over_the_drivers_is_told_by_the_other_library(machine, by_key):
    machine.driver("535.104.05")
    library(machine, USUAL, "libcuda", "550.54.15")
    library(machine, USUAL, "libnvidia-ml", "535.104.05")
    assert seen(machine, by_key) == ("535.104.05", "550.54.15")


def test_a_compat_libcuda_without_a_version_is_not_known(driver, by_key):
    place = driver.file("/usr/local/cuda/compat/libcuda.so.1").parent
    driver.environ["LD_LIBRARY_PATH"] = str(place)
    assert isinstance(seen(driver, by_key)[1], Unknown)


def test_libraries_of_32_bits_are_passed_over(driver, by_key):
    library(driver, "/usr/lib/i386-linux-gnu", "libnvidia-ml", "470.42.01")
    driver.file("/etc/ld.so.conf.d/i386-linux-gnu.conf", "/usr/lib/i386-linux-gnu\n")
    assert seen(driver, by_key)[0] == "550.54.15"


def test_the_library_of_wsl_has_no_version_in_its_name(machine, by_key):
    machine.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.file("/usr/lib/wsl/lib/libnvidia-ml.so.1")
    machine.file("/usr/lib/wsl/lib/libcuda.so.1")
    assert seen(machine, by_key) == (Unknown("its file name holds no version"), ABSENT)


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_are_answered_without_looking(machine, by_key, platform):
    machine.environ.update(SystemRoot=str(machine.root), ProgramFiles=str(machine.root))
    assert seen(machine, by_key, platform=platform) == (ABSENT, ABSENT)


def test_no_gpu_leaves_the_libraries_unread(driver, by_key):
    facts = by_key(observe(driver.request(gpu=False)))
    assert facts["driver.library"] == facts["driver.compat"] == Unknown("--no-gpu was given")


def test_a_mismatch_that_nvml_reports_leaves_version_and_library(driver, nvml_stub, by_key):
    library(driver, "/opt/new", "libnvidia-ml", "550.163.01")
    driver.environ["LD_LIBRARY_PATH"] = str(driver.root / "opt/new")
    facts = by_key(observe(driver.request(nvml_library=nvml_stub(INIT=18))))
    assert facts["driver.mismatch"] is True
    assert (facts["driver.version"], facts["driver.library"]) == ("550.54.15", "550.163.01")


def test_a_library_that_answers_is_the_modules_own(driver, nvml_stub, by_key):
    assert by_key(observe(driver.request(nvml_library=nvml_stub())))["driver.mismatch"] is False
