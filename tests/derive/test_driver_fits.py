"""How a driver runs the CUDA of torch, by its version, its own word, or a cuda-compat package."""

import pytest
from known import answer, following
from observing import shipped
from tables import rows

from envdoctor.facts import Unknown


def fits(cuda, driver=None, **values):
    if driver is not None:
        values["driver__version"] = driver
    return following(torch__cuda=cuda, **values).value("driver.fits")


@rows("cuda driver how")
def test_linux_drivers_are_compared_with_the_table(cuda, driver, how):
    assert fits(cuda, driver, os__platform="linux") == how


@rows("cuda driver how")
@pytest.mark.parametrize("where", [{"os__platform": "windows"}, {"os__platform": "linux", "os__wsl": True}])
def test_windows_and_wsl_have_numbers_of_their_own(cuda, driver, how, where):
    assert fits(cuda, driver, **where) == how


@rows("cuda driver more how")
def test_other_words_of_the_machine(cuda, driver, more, how):
    assert answer(fits(cuda, driver, **more)) == how


def test_a_tegra_driver_is_not_measured_with_other_numbers():
    assert "not numbered" in fits("11.4", "35.4.1").reason
    assert answer(following(driver__version="550.54.15").value("driver.fits")) is Unknown


@rows("driver more mismatch")
def test_library_and_module_are_compared_as_numbers(driver, more, mismatch):
    assert answer(following(driver__version=driver, **more).value("driver.mismatch")) is mismatch


def test_the_table_is_in_order():
    rows = shipped().rows("cuda-drivers")
    columns = ([row[column] for row in rows if column in row] for column in ("key", "linux", "windows"))
    for texts in columns:
        numbers = [tuple(map(int, text.split("."))) for text in texts]
        assert numbers == sorted(numbers)
