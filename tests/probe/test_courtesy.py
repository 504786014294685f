"""A GPU that somebody uses is left alone, one device is enough, and what the user hid stays hidden."""

from __future__ import annotations

from typing import Any

import pytest

from envdoctor.facts import Records, Unknown
from envdoctor.probe import ask, ask_local
from envdoctor.probe.courtesy import Permission


def gpu(uuid: str, *, processes: Any = 0, free: Any = 139.0) -> dict[str, Any]:
    return {"name": "NVIDIA H200", "uuid": uuid, "processes": processes, "free_gib": free}


def asked(*gpus: dict[str, Any], all_gpus: bool = False, force: bool = False, **environ: str) -> Permission:
    return ask(Records(gpus), environ, all_gpus=all_gpus, force=force)


def test_one_idle_device_is_shown_by_its_uuid() -> None:
    assert asked(gpu("GPU-a"), gpu("GPU-b")) == Permission("GPU-a")


def test_a_device_in_use_is_passed_over_and_that_is_said() -> None:
    permission = asked(gpu("GPU-a", processes=2), gpu("GPU-b"))
    assert permission.visible == "GPU-b"
    assert permission.notes[0].startswith("GPU 0 (NVIDIA H200) is in use by 2 other processes: GPU 1")


@pytest.mark.parametrize("busy", [gpu("GPU-a", processes=1), gpu("GPU-a", free=0.5)])
def test_without_an_idle_device_nothing_runs_unless_forced(busy: dict[str, Any]) -> None:
    refused = asked(busy).refused
    assert refused is not None
    assert "--force" in refused
    assert "--device cpu" in refused
    assert asked(busy, force=True).refused is None
    assert asked(busy, force=True).visible == "GPU-a"


def test_all_gpus_are_shown_only_when_all_are_idle() -> None:
    assert asked(gpu("GPU-a"), gpu("GPU-b"), all_gpus=True) == Permission(None)
    assert asked(gpu("GPU-a"), gpu("GPU-b", processes=1), all_gpus=True).refused is not None


def test_what_cannot_be_read_is_said_and_refuses_nothing() -> None:
    permission = asked(gpu("GPU-a", processes=Unknown("a container does not show the processes of others")))
    assert permission.refused is None
    assert "a container does not show" in permission.notes[0]


def test_a_mig_slice_stays_as_it_was_named() -> None:
    permission = asked(gpu("GPU-a", processes=3), CUDA_VISIBLE_DEVICES="MIG-1234,MIG-5678")
    assert (permission.visible, permission.refused) == ("MIG-1234", None)
    assert "was not checked" in permission.notes[0]


@pytest.mark.parametrize(
    ("environ", "visible"),
    [({}, "0"), ({"CUDA_VISIBLE_DEVICES": ""}, ""), ({"CUDA_VISIBLE_DEVICES": "3,1"}, "3")],
)
def test_without_an_answer_of_the_driver_the_users_first_device_is_taken(environ: dict[str, str], visible: str) -> None:
    assert ask(Unknown("no NVML"), environ, all_gpus=False, force=False).visible == visible


@pytest.mark.parametrize(
    ("gpus", "local", "environ", "visible"),
    [
        ([gpu("GPU-a"), gpu("GPU-b")], 1, {}, "GPU-b"),
        ([gpu("GPU-c")], 7, {"CUDA_VISIBLE_DEVICES": "7"}, "GPU-c"),  # srun --gpus-per-task=1
        ([], 1, {"CUDA_VISIBLE_DEVICES": "3,5"}, "5"),
        ([], 2, {}, "2"),
        ([], None, {}, "0"),
        ([], 1, {"CUDA_VISIBLE_DEVICES": ""}, ""),
        ([gpu("GPU-a", processes=3)], 0, {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}, "MIG-1"),
    ],
)
def test_a_rank_has_the_gpu_of_its_number_or_the_only_one(
    gpus: list[dict[str, Any]], local: int | None, environ: dict[str, str], visible: str
) -> None:
    assert ask_local(Records(gpus), environ, local, force=False) == Permission(visible)


@pytest.mark.parametrize(
    ("gpus", "local", "said"),
    [
        ([gpu("GPU-a"), gpu("GPU-b")], 2, "2 GPUs are visible, and none is left for local rank 2"),
        ([gpu("GPU-a"), gpu("GPU-b")], None, "2 GPUs are visible, and which of them is this rank's is not said"),
        ([gpu("GPU-a"), gpu("GPU-b", processes=1)], 1, "GPU 1 (NVIDIA H200) is in use by 1 other process. "),
    ],
)
def test_a_rank_without_a_gpu_of_its_own_refuses(gpus: list[dict[str, Any]], local: int | None, said: str) -> None:
    assert (ask_local(Records(gpus), {}, local, force=False).refused or "").startswith(said)
