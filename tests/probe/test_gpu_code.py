"""The GPU code of the experiments goes the right way, shown with stand-ins where there is no card."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import payload, write_probe
from planted import PROBES, checks_of, inside, pure
from sharing import once

from envdoctor.experiments import PAYLOAD, Wishes, find_probes, run_session
from envdoctor.system import Place

CHECKS = checks_of("cuda_pieces.py")


@pytest.fixture(scope="module")
def pieces(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    printed = once(tmp_path_factory, "cuda-pieces", lambda _: inside(torch_python, "cuda_pieces.py", *CHECKS))
    return json.loads(printed.splitlines()[-1])


@pytest.mark.torch
@pytest.mark.parametrize("check", CHECKS)
def test_with_a_stand_in_for_cuda(pieces: Any, check: str) -> None:
    assert pieces[check] is True


# --- the driver's counters --------------------------------------------------------------------------------------------


class Nvml:
    """A stand-in for libnvidia-ml with two cards: functions of its ``answers``, a code or the numbers that come out."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"nvmlInit_v2": 0, "nvmlShutdown": 0, **answers}

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)
        answer = self.answers[name]

        def called(*given: Any) -> int:
            if name == "nvmlDeviceGetHandleByUUID":
                return 0 if given[0] in answer else 6
            if not isinstance(answer, tuple):
                return int(answer)
            for place, value in zip(given[-len(answer) :], answer, strict=True):
                place._obj.value = value
            return 0

        return called


BOTH = {"nvmlDeviceGetHandleByUUID": (b"GPU-a", b"GPU-b")}
WELL = {
    **BOTH,
    "nvmlDeviceGetTotalEccErrors": (0,),
    "nvmlDeviceGetRemappedRows": (1, 0, 0, 0),
    "nvmlDeviceGetClockInfo": (1980,),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (0x48,),
}


def counted(monkeypatch: pytest.MonkeyPatch, uuids: list[str | None], **answers: Any) -> list[dict[str, Any]]:
    nvml = pure("nvml")
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: Nvml(**answers))
    result: list[dict[str, Any]] = nvml.counters(uuids)
    return result


def test_what_the_driver_counts_is_that_of_the_cards_that_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    first, unknown = counted(monkeypatch, ["GPU-b", None], **WELL)
    wanted = {"ecc_uncorrected": 0, "pending": 0, "failed": 0, "sm_mhz": 1980}
    assert {key: first[key] for key in wanted} == wanted
    assert first["slowed"] == ["hardware", "heat (hardware)"] and "celsius" not in first
    assert unknown == {"unknown": {"driver": "the driver does not know this device"}}


@pytest.mark.parametrize(
    ("answers", "key", "expected"),
    [
        ({"nvmlDeviceGetRemappedRows": (9, 2, 1, 0)}, "pending", 1),
        ({"nvmlDeviceGetRemappedRows": (9, 2, 0, 1)}, "failed", 1),
        ({"nvmlDeviceGetRetiredPagesPendingStatus": (1,)}, "retiring", 1),
        ({"nvmlDeviceGetNvLinkErrorCounter": (3,)}, "nvlink_errors", 3 * 18 * 4),
        ({"nvmlDeviceGetPowerUsage": (699_500,)}, "milliwatts", 699_500),
        ({"nvmlDeviceGetNvLinkState": (1,)}, "nvlinks", 18),
        ({"nvmlDeviceGetCurrPcieLinkWidth": (1,)}, "pcie_lanes", 1),
        # Why it is not known.
        ({"nvmlDeviceGetTotalEccErrors": 3}, "ecc_uncorrected", "this card does not count that"),  # N/A, or ECC is off
        ({"nvmlDeviceGetRemappedRows": 4}, "failed", "the driver does not permit it"),
        ({}, "pcie_replays", "this driver does not know the question"),
        ({"nvmlDeviceGetClockInfo": 15}, "sm_mhz", "the driver has lost the GPU"),
        ({"nvmlDeviceGetClockInfo": 999}, "sm_mhz", "the driver answers with error 999"),
        ({"nvmlDeviceGetHandleByUUID": ()}, "driver", "the driver does not know this device"),
        ({"nvmlInit_v2": 9}, "driver", "the driver is not loaded"),
    ],
)
def test_what_is_wrong_and_what_is_not_said_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], key: str, expected: Any
) -> None:
    (result,) = counted(monkeypatch, ["GPU-a"], **{**WELL, **answers})
    assert (result.get(key), result["unknown"].get(key)) == (
        (None, expected) if isinstance(expected, str) else (expected, None)
    )


def test_a_driver_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, asked, ended = pure("nvml"), [], threading.Event()
    monkeypatch.setattr(nvml, "_PATIENCE", 0.2)

    def hangs(name: str) -> Any:
        asked.append(name)
        ended.wait(30)
        raise OSError(name)

    monkeypatch.setattr(nvml.ctypes, "CDLL", hangs)
    wanted = [{"unknown": {"driver": "the driver gave no answer in 0 s"}}]
    assert (nvml.counters(["GPU-a"]), nvml.counters(["GPU-a"]), nvml.computing(["GPU-a"])) == (wanted, wanted, [None])
    ended.set()
    assert len(asked) == 1


LOG = b"""6,1,2,-;usb 1-1: new device
3,2,3,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.
3,3,4,-;NVRM: Xid (PCI:0000:3B:00): 13, Graphics Exception
3,4,5,-;NVRM: Xid (PCI:0000:3c:00): 48, Double Bit ECC
"""


@pytest.mark.parametrize(("log", "xid", "why"), [(LOG, [79], None), (b"", [], None), (None, None, "cannot be read")])
def test_xid_errors_of_the_card_are_read_where_the_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: bytes | None, xid: Any, why: str | None
) -> None:
    nvml = pure("nvml")
    if log is not None:
        (tmp_path / "kmsg").write_bytes(log)
    monkeypatch.setattr(nvml, "_KERNEL_LOG", str(tmp_path / "kmsg"))

    class Placed(Nvml):
        def nvmlDeviceGetPciInfo_v3(self, handle: Any, place: Any) -> int:
            place._obj.bus = 0x3B
            return 0

    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: Placed(**WELL))
    (result,) = nvml.counters(["GPU-a"])
    assert result.get("xid") == xid and (why or "") in result["unknown"].get("xid", "")


def test_without_the_drivers_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = pure("nvml")

    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(nvml.ctypes, "CDLL", missing)
    assert (nvml.counters(["GPU-a"]), nvml.used_mib(["GPU-a"]), nvml.version()) == (
        [{"unknown": {"driver": "the driver's library is missing"}}],
        [None],
        None,
    )


def test_a_list_that_has_no_room_says_how_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = pure("nvml")
    answers = {**BOTH, "nvmlDeviceGetComputeRunningProcesses_v3": 7}
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: Nvml(**answers))
    assert nvml.computing(["GPU-a", "GPU-c"]) == [0, None]


def test_a_device_of_torch_is_found_again_in_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, older = pure("nvml"), SimpleNamespace()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-x, GPU-y,2")
    assert nvml.identity(1, SimpleNamespace(uuid="12-34")) == "GPU-12-34"
    assert [nvml.identity(number, older) for number in (1, 2, 3)] == ["GPU-y", None, None]


# --- processes that exchange numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "seconds", "answer"),
    [
        (
            "import sys, time; print('stage: importing torch', file=sys.stderr, flush=True); time.sleep(60)",
            3,
            {"error": "did not finish in 3 s, while importing torch"},
        ),
        # What gloo writes beside the answer is no answer.
        ("print('[Gloo] Rank 0 is connected to 1 peer ranks.'); print('{\"sums\": []}')", 60, {"sums": []}),
    ],
)
def test_a_process_is_told_by_its_answer_or_what_it_hangs_at(said: str, seconds: int, answer: Any) -> None:
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", said], stdout=pipe, stderr=pipe, text=True)
    assert pure("collective").finish(child, seconds) == answer


@pytest.mark.torch
def test_messages_are_timed_and_compared(torch_python: str, tmp_path: Path) -> None:
    """1 KiB and 4 KiB in both dtypes, by each exchange, over two processes with gloo."""
    script = PAYLOAD / "probing" / "collective.py"
    given = {"world": 2, "backend": "gloo", "file": str(tmp_path / "store"), "seconds": 60, "sizes": [8]}
    given.update(averages=False, exchanges=True, timed=[1024, 4096])
    commands = [[torch_python, str(script), json.dumps({**given, "rank": rank})] for rank in range(2)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    for child in children:
        said = json.loads(child.communicate(timeout=120)[0])
        exchanges = {title.split()[0] for title in said["speeds"]}
        assert {"sum"} <= exchanges <= {"sum", "reduce-scatter", "all-gather"}
        assert len(said["speeds"]) == 4 * len(exchanges) and all(rate > 0 for rate in said["speeds"].values())
        assert {"sum of 1 KiB in bfloat16", "sum of 4 KiB in float32"} <= set(said["speeds"])
        assert [title for title, wrong in said["sums"] if wrong] == []


def test_eight_processes_with_cuda_have_the_memory_that_they_take() -> None:
    (job,) = PROBES["all-reduce"].jobs("full", "cuda")
    assert job.memory_mib >= 8 * 1500 and job.seconds > 150
    (job,) = PROBES["all-reduce"].jobs("full", "cpu")
    assert job.memory_mib == 2000


# --- what runs where, from a context that says so ---------------------------------------------------------------------

OLD_CARD = 'emit({"kind": "environment", "case": "device", "name": "Tesla V100", "cc": "7.0", "bf16": False})'


@pytest.mark.parametrize(
    ("bf16", "recipe", "dtypes"), [(True, {}, ["bf16"]), (False, {}, ["fp16"]), (False, {"dtype": "bf16"}, ["bf16"])]
)
def test_a_card_without_bf16_is_tried_in_the_dtype_that_it_trains_in(
    tmp_path: Path, bf16: bool, recipe: dict[str, str], dtypes: list[str]
) -> None:
    home = payload(tmp_path)
    write_probe(home, "context", OLD_CARD.replace("False", str(bf16)), alone=True, gpu_memory_mib=None)
    write_probe(home, "half", "emit({'case': 'a case', 'judge': 'exact', 'equal': True})", gpu_memory_mib=None)
    probes = find_probes(home)
    place = Place(sys.executable, {}, str(tmp_path), str(tmp_path), "", home)
    session = run_session(probes["context"], Wishes([probes["half"]], device="cuda", recipe=recipe), place)
    assert [outcome.job.dtype for outcome in session.outcomes if outcome.job.probe == "half"] == dtypes
    assert {outcome.ending for outcome in session.outcomes} == {"ok"}
