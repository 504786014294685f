"""How a driver runs the CUDA of torch, by its version, its own word, or a cuda-compat package."""

import pytest
from known import answer, following
from observing import shipped

from envdoctor.facts import ABSENT, Unknown


def fits(cuda, driver=None, **values):
    if driver is not None:
        values["driver__version"] = driver
    return following(torch__cuda=cuda, **values).value("driver.fits")


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
        # a branch is any release of it
        ("12.4", "525", "some"),
        ("12.4", "520", "no"),
        ("12.4", "535", "minor"),
        ("12.4", "550", Unknown("driver 550 is a branch, and its releases differ: give the whole version")),
        ("12.4", "570", "native"),
        ("13.0", "575", "no"),
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


NEW, OLD, RTX, A100 = "580.65.06", "535.104.05", "NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB"
FOLDER = {"env__LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib"}


def compat(*names, version=NEW):
    return {"driver__compat": version, "gpu": [{"name": name} for name in names]}


@pytest.mark.parametrize(
    ("cuda", "driver", "more", "how"),
    [
        # without a platform a short number counts only when both systems agree
        ("12.1", "526.98", {}, Unknown),
        ("12.1", "516.94", {}, "no"),
        ("12.1", "525.60.13", {}, "minor"),
        # what the driver says of itself comes first, and is enough
        ("12.4", "470.182.03", {"driver__max_cuda": "12.4"}, "native"),
        ("12.4", "550.54.15", {"driver__max_cuda": "12.2"}, "minor"),
        ("13.0", "580.00", {"driver__max_cuda": "13.0", "os__arch": "aarch64"}, "native"),
        ("12.4", "550.54.15", {"driver__max_cuda": "11.8"}, "no"),
        ("12.1", None, {"driver__max_cuda": "11.4"}, "no"),
        ("12.1", None, {"driver__max_cuda": "12.0"}, "minor"),
        ("12.1", None, {"driver__max_cuda": "12.4"}, "native"),
        ("12.1", None, {"driver__max_cuda": "13.0"}, "native"),
        # a machine without a driver and a CPU build have no answer to give
        ("12.4", "absent", {}, ABSENT),
        ("absent", "550.54.15", {}, ABSENT),
        # cuda-compat is for some GPUs
        ("13.0", OLD, compat(A100), "compat"),
        ("13.0", OLD, compat("Tesla T4"), "compat"),
        ("13.0", OLD, compat("Tesla P4"), "compat"),
        ("13.0", OLD, compat(RTX), "no"),
        ("13.0", OLD, compat("NVIDIA TITAN RTX"), "no"),
        ("13.0", OLD, compat("NVIDIA RTX A6000"), Unknown),
        ("13.0", OLD, {"driver__compat": NEW, "gpu": [{"cc": "8.6"}]}, Unknown),
        ("13.0", OLD, compat(), Unknown),
        ("13.0", OLD, compat(A100, RTX), "no"),
        # a compat package that is too old itself or not needed changes nothing
        ("13.0", OLD, compat(A100, version="570.26"), "no"),
        ("12.8", OLD, compat(A100), "minor"),
        # a compat folder that nobody looked into leaves it open
        ("13.0", OLD, FOLDER, Unknown),
        ("13.0", OLD, {**FOLDER, "driver__compat": "absent"}, "no"),
        ("12.8", OLD, FOLDER, "minor"),
    ],
)
def test_other_words_of_the_machine(cuda, driver, more, how):
    assert answer(fits(cuda, driver, **more)) == how


def test_a_tegra_driver_is_not_measured_with_other_numbers():
    assert "not numbered" in fits("11.4", "35.4.1").reason
    assert answer(following(driver__version="550.54.15").value("driver.fits")) is Unknown


@pytest.mark.parametrize(
    ("driver", "more", "mismatch"),
    [
        ("550.54.15", {"driver__library": "550.54.15"}, False),
        ("550.54.15", {"driver__library": "550.163.01"}, True),
        ("576.88", {"driver__library": "575.64.01", "os__wsl": True}, Unknown),
        ("550.54.15", {"driver__max_cuda": "12.4"}, False),  # a driver that tells its CUDA fits its module
    ],
)
def test_library_and_module_are_compared_as_numbers(driver, more, mismatch):
    assert answer(following(driver__version=driver, **more).value("driver.mismatch")) is mismatch


def test_the_table_is_in_order():
    rows = shipped().rows("cuda-drivers")
    columns = ([row[column] for row in rows if column in row] for column in ("key", "linux", "windows"))
    for texts in columns:
        numbers = [tuple(map(int, text.split("."))) for text in texts]
        assert numbers == sorted(numbers)
