"""CUDA_VISIBLE_DEVICES, translated into the GPUs that a process sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe.machine.reading.visible_devices import missing, visible

SAME = tuple({"index": index, "name": "H100", "uuid": f"GPU-{index}abc-def{index}"} for index in range(4))
MIXED = ({"index": 0, "name": "T4", "uuid": "GPU-aa1"}, {"index": 1, "name": "H100", "uuid": "GPU-aa2"})


def indices(setting: str | None, items=SAME, **environ: str) -> list[int]:
    if setting is not None:
        environ["CUDA_VISIBLE_DEVICES"] = setting
    records = visible(environ, items)
    assert records.incomplete is None
    return [item["index"] for item in records]


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 1 , 2 ", [1, 2]),
        ("0,9,1", [0]),
        ("0,-1,1", [0]),
        ("1,1", []),
        ("0,x,1", [0]),
        ("GPU-1abc-def1", [1]),
        ("GPU-3,GPU-0", [3, 0]),
        ("GPU-", []),
        ("GPU-1,GPU-9,GPU-2", [1]),
        ("GPU-1,2", [1]),
        ("GPU-1,GPU-1", []),
    ],
)
def test_the_variable_means_what_cuda_says(setting, seen):
    assert indices(setting) == seen


def test_ordinals_of_different_gpus_are_ambiguous():
    records = visible({"CUDA_VISIBLE_DEVICES": "0"}, MIXED)
    assert len(records) == 2
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in records.incomplete


def test_the_pci_order_makes_ordinals_certain():
    assert indices("1", MIXED, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [1]


def test_naming_all_of_different_gpus_is_certain():
    assert sorted(indices("1,0", MIXED)) == [0, 1]


def test_hiding_all_of_different_gpus_is_certain():
    assert indices("-1", MIXED) == []


def test_uuids_of_different_gpus_are_certain():
    assert indices("GPU-aa2", MIXED) == [1]


def test_uuids_cannot_be_followed_when_they_are_unknown():
    items = ({"index": 0, "name": "T4", "uuid": Unknown("not said")},)
    assert visible({"CUDA_VISIBLE_DEVICES": "GPU-aa1"}, items).incomplete is not None


def test_a_mig_slice_is_not_translated():
    records = visible({"CUDA_VISIBLE_DEVICES": "MIG-4fa2"}, SAME)
    assert len(records) == 4
    assert "MIG" in records.incomplete


def test_what_made_the_list_incomplete_is_kept():
    assert visible({"CUDA_VISIBLE_DEVICES": "1"}, SAME, "one is sick") == Records((SAME[1],), "one is sick")


@given(st.text(max_size=40) | st.lists(st.integers(-2, 6), max_size=6).map(lambda n: ",".join(map(str, n))))
def test_no_setting_invents_a_gpu(setting):
    records = visible({"CUDA_VISIBLE_DEVICES": setting}, SAME)
    seen = [item["index"] for item in records]
    assert len(set(seen)) == len(seen)
    assert set(seen) <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("setting", "lost"),
    [
        (None, ABSENT),
        ("", ABSENT),
        ("-1", ABSENT),
        ("NoDevFiles", ABSENT),
        ("0,3", ABSENT),
        ("0,4", "4"),
        ("7, 8,7", "7,8"),
        ("GPU-1abc-def1", ABSENT),
        ("GPU-0,GPU-ffff", "GPU-ffff"),
        ("MIG-1234", Unknown("CUDA_VISIBLE_DEVICES names a MIG slice, and slices are not read")),
    ],
)
def test_entries_that_name_no_gpu_are_told(setting, lost):
    assert missing({} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}, SAME) == lost


def test_an_entry_beyond_a_list_that_may_hold_more_is_not_known():
    environ = {"CUDA_VISIBLE_DEVICES": "5"}
    assert missing(environ, SAME, "MIG is on") == Unknown("MIG is on")
    assert missing({"CUDA_VISIBLE_DEVICES": "1"}, SAME, "MIG is on") is ABSENT


def test_uuids_cannot_be_compared_with_unknown_ones():
    assert isinstance(missing({"CUDA_VISIBLE_DEVICES": "GPU-1"}, ({"uuid": Unknown("?")},)), Unknown)


@given(st.text(alphabet="0123456789,-+ GPUMIax", max_size=40))
def test_no_setting_makes_the_reader_fail(setting):
    assert isinstance(missing({"CUDA_VISIBLE_DEVICES": setting}, SAME), (str, type(ABSENT), Unknown))
