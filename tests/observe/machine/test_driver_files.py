"""The driver's libraries by their names, and a cuda-compat package in front of them."""

from pathlib import Path

import pytest

from envdoctor.facts import ABSENT, Unknown

USUAL, COMPAT = "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda-13.0/compat"
#: The libraries of a driver whose module is of the same version.
OWN = {f"{USUAL}/libcuda": "550.54.15", f"{USUAL}/libnvidia-ml": "550.54.15"}
CONF = ("/etc/ld.so.conf.d/00-compat.conf", f"# forward compatibility\n{COMPAT}\n")


def library(machine, place: str, version: str) -> Path:
    """``libcuda.so.1`` as a link to ``libcuda.so.<version>``, as drivers and packages install it; its folder."""
    path = machine.file(f"{place}.so.{version}")
    (path.parent / f"{path.name.partition('.')[0]}.so.1").symlink_to(path.name)
    return path.parent


def seen(machine, **changes):
    facts = machine.driver_facts(**changes)
    return facts["driver.library"], facts["driver.compat"]


@pytest.mark.parametrize(
    ("module", "libraries", "path", "found"),
    [
        (None, {f"{USUAL}/libcuda": "550.54.15"}, "", (ABSENT, ABSENT)),
        ("550.54.15", OWN, "", ("550.54.15", ABSENT)),
        ("535.104.05", {"/usr/lib64/libnvidia-ml": "535.104.05"}, "", ("535.104.05", ABSENT)),
        ("535.104.05", {"/usr/local/nvidia/lib64/libnvidia-ml": "535.104.05"}, "", ("535.104.05", ABSENT)),
        ("535.104.05", {"/usr/lib/aarch64-linux-gnu/libnvidia-ml": "535.104.05"}, "", ("535.104.05", ABSENT)),
        # upgraded libraries beside the old module are told by their version
        ("550.54.15", dict.fromkeys(OWN, "550.163.01"), "", ("550.163.01", ABSENT)),
        # a compat folder on the library path comes first, unless it holds the driver's own version
        ("550.54.15", {**OWN, f"{COMPAT}/libcuda": "580.65.06"}, COMPAT, ("550.54.15", "580.65.06")),
        ("550.54.15", {**OWN, f"{COMPAT}/libcuda": "550.54.15"}, COMPAT, ("550.54.15", ABSENT)),
        ("550.54.15", {**OWN, f"{COMPAT}/libcuda": "580.65.06"}, "", ("550.54.15", ABSENT)),
        # a compat libcuda that was mounted over the driver's is told by the other library
        (
            "535.104.05",
            {f"{USUAL}/libcuda": "550.54.15", f"{USUAL}/libnvidia-ml": "535.104.05"},
            "",
            ("535.104.05", "550.54.15"),
        ),
    ],
)
def test_versions_are_those_of_the_files_that_the_loader_takes(machine, module, libraries, path, found):
    if module is not None:
        machine.driver(module)
    for place, version in libraries.items():
        library(machine, place, version)
    machine.environ["LD_LIBRARY_PATH"] = f"relative::/nowhere:{machine.root}{path}" if path else ""
    assert seen(machine) == found


@pytest.fixture
def driver(machine):
    """A driver whose module and libraries are of one version."""
    machine.driver("550.54.15")
    for place, version in OWN.items():
        library(machine, place, version)
    return machine


def test_a_compat_folder_of_ld_so_conf_comes_before_the_usual_ones(driver):
    library(driver, f"{COMPAT}/libcuda", "580.65.06")
    driver.file(*CONF)
    assert seen(driver) == ("550.54.15", "580.65.06")


def test_a_compat_libcuda_without_a_version_is_not_known(driver):
    driver.environ["LD_LIBRARY_PATH"] = str(driver.file("/usr/local/cuda/compat/libcuda.so.1").parent)
    assert isinstance(seen(driver)[1], Unknown)


def test_libraries_of_32_bits_are_passed_over(driver):
    library(driver, "/usr/lib/i386-linux-gnu/libnvidia-ml", "470.42.01")
    driver.file("/etc/ld.so.conf.d/i386-linux-gnu.conf", "/usr/lib/i386-linux-gnu\n")
    assert seen(driver)[0] == "550.54.15"


def test_the_library_of_wsl_has_no_version_in_its_name(machine):
    machine.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.file("/usr/lib/wsl/lib/libnvidia-ml.so.1")
    machine.file("/usr/lib/wsl/lib/libcuda.so.1")
    assert seen(machine) == (Unknown("its file name holds no version"), ABSENT)


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_are_answered_without_looking(machine, platform):
    machine.environ.update(SystemRoot=str(machine.root), ProgramFiles=str(machine.root))
    assert seen(machine, platform=platform) == (ABSENT, ABSENT)


def test_a_mismatch_that_nvml_reports_leaves_version_and_library(driver, nvml_stub):
    assert driver.driver_facts(nvml_library=nvml_stub())["driver.mismatch"] is False
    driver.environ["LD_LIBRARY_PATH"] = str(library(driver, "/opt/new/libnvidia-ml", "550.163.01"))
    facts = driver.driver_facts(nvml_library=nvml_stub(INIT=18))
    assert facts["driver.mismatch"] is True
    assert (facts["driver.version"], facts["driver.library"]) == ("550.54.15", "550.163.01")
