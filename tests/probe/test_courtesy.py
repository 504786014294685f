"""A GPU that somebody uses is left alone, one device is enough, and what the user hid stays hidden."""

from typing import Any

import pytest

from envdoctor.experiments import ask, ask_local
from envdoctor.facts import Records, Unknown


def gpu(uuid: str, *, processes: Any = 0, free: Any = 139.0) -> dict[str, Any]:
    return {"name": "NVIDIA H200", "uuid": uuid, "processes": processes, "free_gib": free}


A, B = gpu("GPU-a"), gpu("GPU-b")
BUSY, FULL = gpu("GPU-a", processes=1), gpu("GPU-a", free=0.5)
HIDDEN = Unknown("a container does not show the processes of others")
UNREAD = Unknown("no NVML")


def asked(gpus: Any, all_gpus: bool = False, force: bool = False, **environ: str) -> Any:
    return ask(Records(gpus) if isinstance(gpus, list) else gpus, environ, all_gpus=all_gpus, force=force)


@pytest.mark.parametrize(
    ("gpus", "options", "visible", "note"),
    [
        ([A], {}, "GPU-a", None),
        ([A, B], {}, "GPU-a", "1 of 2 GPUs is measured, GPU 0 (NVIDIA H200): --all-gpus measures all"),
        # A card in slices (MIG): of which nobody knows who computes there.
        ([gpu("GPU-a", processes=UNREAD, free=UNREAD)], {}, "GPU-a", "whether others compute on the GPU could not"),
        ([A, B], {"all_gpus": True}, None, None),
        ([BUSY], {"force": True}, "GPU-a", "--force"),
        ([A, gpu("GPU-b", processes=1)], {"force": True, "all_gpus": True}, None, "1 other process (--force)"),
        ([FULL], {"force": True}, "GPU-a", "--force"),
        ([gpu("GPU-a", processes=2), B], {}, "GPU-b", "GPU 0 (NVIDIA H200) is in use by 2 other processes: GPU 1"),
        ([gpu("GPU-a", processes=HIDDEN)], {}, "GPU-a", "a container does not show"),
        ([gpu("GPU-a", processes=3)], {"CUDA_VISIBLE_DEVICES": "MIG-12,MIG-56"}, "MIG-12", "was not checked"),
        # Without an answer of the driver the user's first device is taken.
        (UNREAD, {}, "0", None),
        (UNREAD, {"CUDA_VISIBLE_DEVICES": ""}, "", None),
        (UNREAD, {"CUDA_VISIBLE_DEVICES": "3,1"}, "3", None),
    ],
)
def test_one_idle_device_is_shown_and_what_is_odd_is_said(
    gpus: Any, options: dict[str, Any], visible: str | None, note: str | None
) -> None:
    permission = asked(gpus, **options)
    assert permission[:2] == (visible, None)
    assert permission.notes == () if note is None else note in permission.notes[0]


@pytest.mark.parametrize(
    ("gpus", "all_gpus"), [([BUSY], False), ([FULL], False), ([BUSY, gpu("GPU-b", processes=1)], True)]
)
def test_without_an_idle_device_nothing_runs_unless_forced(gpus: list[Any], all_gpus: bool) -> None:
    refused = asked(gpus, all_gpus).refused
    assert "--force" in refused
    assert "--device cpu" in refused


def test_of_all_gpus_the_busy_ones_are_left_out_and_named() -> None:
    permission = asked([A, gpu("GPU-b", processes=2), gpu("GPU-c")], all_gpus=True)
    assert permission[:3] == ("GPU-a,GPU-c", None, ())
    assert permission.left_out == ("not measured: GPU 1 (NVIDIA H200) is in use by 2 other processes",)


@pytest.mark.parametrize(
    ("gpus", "local", "environ", "visible"),
    [
        ([A, B], 1, {}, "GPU-b"),
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
    assert ask_local(Records(gpus), environ, local, force=False) == (visible, None, (), ())


@pytest.mark.parametrize(
    ("gpus", "local", "said"),
    [
        ([A, B], 2, "2 GPUs are visible, and none is left for local rank 2"),
        ([A, B], None, "2 GPUs are visible, and which of them is this rank's is not said"),
        ([A, gpu("GPU-b", processes=1)], 1, "GPU 1 (NVIDIA H200) is in use by 1 other process. "),
    ],
)
def test_a_rank_without_a_gpu_of_its_own_refuses(gpus: list[dict[str, Any]], local: int | None, said: str) -> None:
    assert (ask_local(Records(gpus), {}, local, force=False).refused or "").startswith(said)
