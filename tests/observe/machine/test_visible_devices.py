"""CUDA_VISIBLE_DEVICES, translated into the GPUs that a process sees."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, Records, Unknown

SAME = ("H100",) * 4


@pytest.fixture
def seen(machine):
    """The GPUs that a process sees of these, and the entries of the variable that name none."""
    machine.driver()
    machine.file("/dev/nvidiactl")

    def look(setting, names=SAME, uuid="GPU-{0}abc-def{0}", **environ):
        for index, name in enumerate(names):
            machine.gpu(f"0000:0{index}:00.0", name, index, uuid.format(index))
        machine.environ = environ if setting is None else {**environ, "CUDA_VISIBLE_DEVICES": setting}
        facts = machine.driver_facts()
        return facts["gpu"], facts["gpu.visible_missing"]

    return look


def indices(gpus: Records) -> list[object]:
    assert gpus.incomplete is None
    return [item["index"] for item in gpus]


@pytest.mark.parametrize(
    ("setting", "found", "lost"),
    [
        (None, [0, 1, 2, 3], ABSENT),
        ("", [], ABSENT),
        ("-1", [], ABSENT),
        ("NoDevFiles", [], ABSENT),
        ("2", [2], ABSENT),
        ("3,1", [3, 1], ABSENT),
        (" 1 , 2 ", [1, 2], ABSENT),
        ("0,9,1", [0], "9"),
        ("0,4", [0], "4"),
        ("7, 8,7", [], "7,8"),
        ("0,-1,1", [0], ABSENT),
        ("1,1", [], ABSENT),
        ("0,x,1", [0], ABSENT),
        ("GPU-1abc-def1", [1], ABSENT),
        ("GPU-3,GPU-0", [3, 0], ABSENT),
        ("GPU-", [], ABSENT),
        ("GPU-1,GPU-9,GPU-2", [1], "GPU-9"),
        ("GPU-0,GPU-ffff", [0], "GPU-ffff"),
        ("GPU-1,2", [1], ABSENT),
        ("GPU-1,GPU-1", [], ABSENT),
    ],
)
def test_the_variable_means_what_cuda_says(seen, setting, found, lost):
    gpus, missing = seen(setting)
    assert (indices(gpus), missing) == (found, lost)


@pytest.mark.parametrize(
    ("setting", "environ", "found"),
    [("1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1]), ("1,0", {}, [1, 0]), ("-1", {}, []), ("GPU-1", {}, [1])],
)
def test_of_different_gpus_the_bus_order_all_none_and_uuids_are_certain(seen, setting, environ, found):
    assert indices(seen(setting, ("T4", "H100"), **environ)[0]) == found


def test_ordinals_of_different_gpus_are_ambiguous(seen):
    gpus, _ = seen("0", ("T4", "H100"))
    assert len(gpus) == 2 and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in gpus.incomplete


def test_uuids_cannot_be_followed_when_they_are_unknown(seen):
    gpus, missing = seen("GPU-aa1", ("T4",), "GPU-????")
    assert gpus.incomplete is not None and isinstance(missing, Unknown)


@pytest.mark.parametrize(
    ("setting", "found", "why", "lost"),
    [("1", [1], "MIG is on", ABSENT), ("5", [], "MIG is on", "MIG is on"), ("MIG-4fa2", [0, 1], "slices", "slices")],
)
def test_a_list_that_may_hold_more_stays_so_and_a_mig_slice_is_not_translated(
    machine, nvml_stub, setting, found, why, lost
):
    machine.environ["CUDA_VISIBLE_DEVICES"] = setting
    facts = machine.driver_facts(nvml_library=nvml_stub(MIG=1, SAME=1))
    assert [item["index"] for item in facts["gpu"]] == found and why in facts["gpu"].incomplete
    missing = facts["gpu.visible_missing"]
    assert missing is lost or lost in missing.reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(max_size=40)
    | st.text(alphabet="0123456789,-+ GPUMIax", max_size=40)
    | st.lists(st.integers(-2, 6), max_size=6).map(lambda n: ",".join(map(str, n)))
)
def test_no_setting_invents_a_gpu(seen, setting):
    gpus, missing = seen(setting)
    found = [item["index"] for item in gpus]
    assert len(set(found)) == len(found) and set(found) <= {0, 1, 2, 3}
    assert isinstance(missing, (str, type(ABSENT), Unknown))
