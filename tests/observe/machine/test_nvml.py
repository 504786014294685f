"""NVML: what the driver's library says, and what becomes of its refusals."""

from __future__ import annotations

import sys

import pytest

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe import observe
from envdoctor.observe.machine.reading import nvml

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in library is built for POSIX")


def test_two_gpus_are_described_with_all_columns(machine, nvml_stub, by_key):
    facts = by_key(nvml.observe(machine.request(nvml_library=nvml_stub())))
    assert facts["driver.version"] == "550.54.15"
    assert facts["driver.max_cuda"] == "12.4"
    assert facts["gpu"] == Records(
        (
            {
                "index": 0,
                "name": "NVIDIA H100 80GB HBM3",
                "cc": "9.0",
                "memory_gib": 80.0,
                "free_gib": 79.0,
                "processes": 0,
                "uuid": "GPU-01111111-2222-3333-4444-555555555555",
            },
            {
                "index": 1,
                "name": "NVIDIA GeForce RTX 3090",
                "cc": "8.6",
                "memory_gib": 24.0,
                "free_gib": 20.0,
                "processes": 0,
                "uuid": "GPU-11111111-2222-3333-4444-555555555555",
            },
        )
    )


def test_a_library_that_is_not_there_is_a_reason(machine, by_key):
    facts = by_key(nvml.observe(machine.request(nvml_library=str(machine.root / "libnvidia-ml.so.1"))))
    assert facts["gpu"] == Unknown("the driver's library libnvidia-ml is not installed here")


def test_a_library_that_is_no_library_is_a_reason(machine, by_key):
    path = machine.file("/lib/libnvidia-ml.so.1", "not an ELF file")
    assert isinstance(by_key(nvml.observe(machine.request(nvml_library=str(path))))["gpu"], Unknown)


@pytest.mark.parametrize(
    ("code", "words"),
    [(18, "driver/library version mismatch"), (9, "driver is not loaded"), (4, "no permission"), (77, "error 77")],
)
def test_a_refusal_at_the_start_is_named(machine, nvml_stub, by_key, code, words):
    facts = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(INIT=code))))
    assert {type(value) for key, value in facts.items() if key != "driver.mismatch"} == {Unknown}
    assert words in facts["gpu"].reason
    assert (facts["driver.mismatch"] is True) == (code == 18)


def test_a_driver_that_hangs_costs_the_time_limit_and_no_more(machine, nvml_stub, by_key):
    facts = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(HANG=1), nvml_timeout=0.2)))
    assert facts["gpu"] == Unknown("NVML did not answer in 0.2 s")


def test_what_nvml_cannot_tell_is_taken_from_proc(machine, nvml_stub, by_key):
    machine.driver("550.54.14")
    machine.gpu("0000:01:00.0", "NVIDIA H100 80GB HBM3", 0)
    machine.file("/dev/nvidiactl")
    facts = by_key(observe(machine.request(nvml_library=nvml_stub(INIT=18))))
    assert facts["driver.version"] == "550.54.14"
    assert "version mismatch" in facts["driver.max_cuda"].reason
    (gpu,) = facts["gpu"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert "version mismatch" in gpu["cc"].reason


def test_an_unknown_highest_cuda_does_not_replace_the_gpus(machine, nvml_stub, by_key):
    machine.driver()
    facts = by_key(observe(machine.request(nvml_library=nvml_stub(CUDA_CODE=12))))
    assert "libcuda is not here" in facts["driver.max_cuda"].reason
    assert [item["cc"] for item in facts["gpu"]] == ["9.0", "8.6"]


def test_a_forward_compatibility_libcuda_hides_what_the_driver_supports(machine, nvml_stub, by_key):
    folder = machine.root / "compat"
    folder.mkdir()
    (folder / "libcuda.so.555.42.02").write_text("")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.555.42.02")
    machine.environ["LD_LIBRARY_PATH"] = f"/nowhere:{folder}"
    request = machine.request(nvml_library=nvml_stub())
    assert "libcuda.so.555.42.02" in by_key(nvml.observe(request))["driver.max_cuda"].reason


def test_the_drivers_own_libcuda_on_the_search_path_is_no_obstacle(machine, nvml_stub, by_key):
    folder = machine.root / "lib"
    folder.mkdir()
    (folder / "libcuda.so.550.54.15").write_text("")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.550.54.15")
    machine.environ["LD_LIBRARY_PATH"] = str(folder)
    assert by_key(nvml.observe(machine.request(nvml_library=nvml_stub())))["driver.max_cuda"] == "12.4"


def test_a_gpu_that_this_user_may_not_open_is_not_seen(machine, nvml_stub, by_key):
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(HANDLE_1=4))))["gpu"]
    assert [item["index"] for item in gpus] == [0]
    assert gpus.incomplete is None


def test_a_lost_gpu_stays_in_the_list_with_its_reason(machine, nvml_stub, by_key):
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(HANDLE_1=15))))["gpu"]
    assert "GPU is lost" in gpus.items[1]["name"].reason


def test_a_gpu_without_memory_of_its_own_keeps_the_other_columns(machine, nvml_stub, by_key):
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(MEMORY_CODE=3))))["gpu"]
    assert isinstance(gpus.items[0]["memory_gib"], Unknown)
    assert gpus.items[0]["cc"] == "9.0"


def test_mig_makes_the_memory_and_the_list_uncertain(machine, nvml_stub, by_key):
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(MIG=1))))["gpu"]
    assert "MIG is on for GPU 0" in gpus.incomplete
    assert isinstance(gpus.items[0]["memory_gib"], Unknown)
    assert gpus.items[1]["memory_gib"] == 24.0


@pytest.mark.parametrize("macros", [{"PROCESSES": 3}, {"PROCESSES": 3, "OLD": 1}])
def test_processes_are_counted_without_reading_them(machine, nvml_stub, by_key, macros):
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(**macros))))["gpu"]
    assert gpus.items[0]["processes"] == 3


def test_no_process_in_a_container_proves_nothing(machine, nvml_stub, by_key):
    machine.file("/.dockerenv")
    gpus = by_key(nvml.observe(machine.request(nvml_library=nvml_stub())))["gpu"]
    assert gpus.items[0]["processes"] == Unknown("a container does not show the processes of others")


def test_a_driver_version_that_is_none_is_unknown(machine, nvml_stub, by_key):
    request = machine.request(nvml_library=nvml_stub(DRIVER="unreleased"))
    assert isinstance(by_key(nvml.observe(request))["driver.version"], Unknown)


def test_a_machine_with_the_library_and_no_gpu_has_none(machine, nvml_stub, by_key):
    assert by_key(nvml.observe(machine.request(nvml_library=nvml_stub(COUNT=0))))["gpu"] == Records(())


def test_no_gpu_leaves_driver_and_gpus_unread(machine, nvml_stub, by_key):
    machine.driver()
    facts = by_key(observe(machine.request(nvml_library=nvml_stub(), gpu=False)))
    for key in ("driver.version", "driver.max_cuda", "gpu"):
        assert facts[key] == Unknown("--no-gpu was given")


def test_hidden_gpus_are_left_out(machine, nvml_stub, by_key):
    machine.environ["CUDA_VISIBLE_DEVICES"] = ""
    facts = by_key(nvml.observe(machine.request(nvml_library=nvml_stub())))
    assert facts["gpu"] == Records(())
    assert facts["driver.version"] is not ABSENT


def test_a_visible_device_that_is_not_there_is_named(machine, nvml_stub, by_key):
    machine.environ["CUDA_VISIBLE_DEVICES"] = "1,2"
    facts = by_key(nvml.observe(machine.request(nvml_library=nvml_stub(SAME=1))))
    assert facts["gpu.visible_missing"] == "2"
    assert [item["index"] for item in facts["gpu"]] == [1]
