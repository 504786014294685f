"""The driver as the kernel shows it, without NVML."""

from __future__ import annotations

import pytest

from envdoctor.facts import ABSENT, Records, Unknown
from envdoctor.observe.gather import gather
from envdoctor.observe.machine.reading import proc_driver


def test_a_machine_without_any_trace_plainly_has_no_gpu(machine, by_key):
    facts = by_key(list(gather(machine.request(), ["machine"])))
    assert facts["driver.version"] is ABSENT
    assert facts["driver.max_cuda"] is ABSENT
    assert facts["gpu"] == Records(())
    assert facts["machine.accelerators"] == ()


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_without_a_driver_plainly_have_no_gpu(machine, by_key, platform):
    machine.environ.update(SystemRoot=str(machine.root), ProgramFiles=str(machine.root))
    assert by_key(list(gather(machine.request(platform=platform), ["machine"])))["gpu"] == Records(())


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs@buildhost)",
    ],
)
def test_the_version_is_read_from_proc(machine, by_key, line):
    machine.file("/proc/driver/nvidia/version", line + "\nGCC version:  gcc version 12.3.0\n")
    assert by_key(proc_driver.observe(machine.request()))["driver.version"] == "550.54.15"


def test_the_version_is_read_from_sys_when_proc_lacks_it(machine, by_key):
    machine.file("/sys/module/nvidia/version", "570.86.10\n")
    assert by_key(proc_driver.observe(machine.request()))["driver.version"] == "570.86.10"


def test_gpus_have_names_and_no_compute_capability(machine, by_key):
    machine.driver()
    machine.file("/dev/nvidiactl")
    machine.gpu("0000:01:00.0", "NVIDIA A100-SXM4-80GB", 0, uuid="GPU-12")
    machine.gpu("0000:41:00.0", "NVIDIA A100-SXM4-80GB", 1)
    facts = by_key(proc_driver.observe(machine.request(nvml_problem="NVML is asleep")))
    first, second = facts["gpu"]
    assert (first["name"], first["uuid"], first["cc"]) == ("NVIDIA A100-SXM4-80GB", "GPU-12", Unknown("NVML is asleep"))
    assert isinstance(second["uuid"], Unknown)
    assert facts["driver.max_cuda"] == Unknown("NVML is asleep")


def test_a_container_that_was_given_no_gpu_sees_none(machine, by_key):
    machine.driver()
    machine.gpu("0000:01:00.0", "NVIDIA A100-SXM4-80GB", 0)
    machine.file("/.dockerenv")
    assert by_key(proc_driver.observe(machine.request()))["gpu"] == Records(())


def test_a_container_sees_the_gpus_whose_device_nodes_it_has(machine, by_key):
    machine.driver()
    machine.gpu("0000:01:00.0", "NVIDIA A100-SXM4-80GB", 0)
    machine.gpu("0000:41:00.0", "NVIDIA L4", 1)
    for name in ("nvidiactl", "nvidia1"):
        machine.file(f"/dev/{name}")
    machine.file("/.dockerenv")
    assert [item["name"] for item in by_key(proc_driver.observe(machine.request()))["gpu"]] == ["NVIDIA L4"]


def test_a_driver_without_a_list_of_gpus_leaves_them_unknown(machine, by_key):
    machine.file("/dev/nvidiactl")
    facts = by_key(proc_driver.observe(machine.request()))
    assert isinstance(facts["gpu"], Unknown)
    assert isinstance(facts["driver.version"], Unknown)


def test_a_jetson_is_not_said_to_have_no_gpu(machine, by_key):
    machine.file("/etc/nv_tegra_release", "# R36 (release)")
    request = machine.request(nvml_library=str(machine.root / "none.so"))
    assert isinstance(by_key(list(gather(request, ["machine"])))["gpu"], Unknown)


def test_garbage_in_proc_is_unknown(machine, by_key):
    machine.file("/proc/driver/nvidia/version", "\0\x1b[31m" * 1000)
    assert isinstance(by_key(proc_driver.observe(machine.request()))["driver.version"], Unknown)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/dev/davinci0", "ascend"),
        ("/usr/local/Ascend/version", "ascend"),
        ("/dev/kfd", "rocm"),
        ("/opt/rocm/.info/version", "rocm"),
        ("/dev/nvidiactl", "nvidia"),
    ],
)
def test_accelerators_are_recognised_by_their_signs(machine, by_key, path, kind):
    machine.file(path)
    assert by_key(list(gather(machine.request(gpu=False), ["machine"])))["machine.accelerators"] == (kind,)


def test_visible_devices_are_not_judged_where_there_is_no_driver(machine, by_key):
    assert by_key(list(gather(machine.request(), ["machine"])))["gpu.visible_missing"] is ABSENT
    machine.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert by_key(list(gather(machine.request(), ["machine"])))["gpu.visible_missing"] == Unknown(
        "there is no NVIDIA driver"
    )


def test_visible_devices_are_compared_with_what_proc_lists(machine, by_key):
    machine.driver()
    machine.file("/dev/nvidiactl")
    machine.gpu("0000:01:00.0", "NVIDIA A100-SXM4-80GB", 0)
    machine.environ["CUDA_VISIBLE_DEVICES"] = "1"
    facts = by_key(proc_driver.observe(machine.request()))
    assert facts["gpu.visible_missing"] == "1"
    assert facts["gpu"] == Records(())
