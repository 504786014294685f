"""The driver as the kernel shows it, without NVML."""

import pytest

from envdoctor.facts import ABSENT, Records, Unknown

A100 = "NVIDIA A100-SXM4-80GB"
NVRM = "NVRM version: NVIDIA UNIX "
#: Why NVML says nothing here.
REASON = Unknown("the driver's library libnvidia-ml is not installed here")


def test_a_machine_without_any_trace_plainly_has_no_gpu(machine):
    facts = machine.facts()
    assert facts["driver.version"] is facts["driver.max_cuda"] is facts["gpu.visible_missing"] is ABSENT
    assert (facts["gpu"], facts["machine.accelerators"]) == (Records(()), ())
    machine.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert machine.facts()["gpu.visible_missing"] == Unknown("there is no NVIDIA driver")


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_without_a_driver_plainly_have_no_gpu(machine, platform):
    machine.environ.update(SystemRoot=str(machine.root), ProgramFiles=str(machine.root))
    assert machine.facts(platform=platform)["gpu"] == Records(())


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("proc/driver", f"{NVRM}x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC 12\n", "550.54.15"),
        ("proc/driver", f"{NVRM}Open Kernel Module for x86_64  550.54.15  Release Build  (dvs@host)\n", "550.54.15"),
        ("sys/module", "570.86.10\n", "570.86.10"),
        ("proc/driver", "\0\x1b[31m" * 1000, REASON),
    ],
)
def test_the_version_is_read_from_proc_or_sys(machine, path, text, version):
    machine.file(f"/{path}/nvidia/version", text)
    assert machine.driver_facts()["driver.version"] == version


def test_gpus_have_names_and_no_compute_capability(machine):
    machine.driver()
    machine.file("/dev/nvidiactl")
    machine.gpu("0000:01:00.0", A100, 0, uuid="GPU-12")
    machine.gpu("0000:41:00.0", A100, 1)
    facts = machine.driver_facts()
    first, second = facts["gpu"]
    assert (first["name"], first["uuid"], first["cc"]) == (A100, "GPU-12", REASON)
    assert isinstance(second["uuid"], Unknown)
    assert facts["driver.max_cuda"] == REASON
    machine.environ["CUDA_VISIBLE_DEVICES"] = "2"
    facts = machine.driver_facts()
    assert (facts["gpu.visible_missing"], facts["gpu"]) == ("2", Records(()))


@pytest.mark.parametrize(("nodes", "names"), [([], []), (["nvidiactl", "nvidia1"], ["NVIDIA L4"])])
def test_a_container_sees_the_gpus_whose_device_nodes_it_has(machine, nodes, names):
    machine.driver()
    machine.gpu("0000:01:00.0", A100, 0)
    machine.gpu("0000:41:00.0", "NVIDIA L4", 1)
    for path in ("/.dockerenv", *(f"/dev/{name}" for name in nodes)):
        machine.file(path)
    assert [item["name"] for item in machine.driver_facts()["gpu"]] == names


@pytest.mark.parametrize("trace", ["/dev/nvidiactl", "/etc/nv_tegra_release"])
def test_a_driver_without_a_list_of_gpus_or_a_jetson_is_not_said_to_have_none(machine, trace):
    machine.file(trace)
    facts = machine.driver_facts()
    assert isinstance(facts["gpu"], Unknown) and isinstance(facts["driver.version"], Unknown)


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
def test_accelerators_are_recognised_by_their_signs(machine, path, kind):
    machine.file(path)
    assert machine.facts(gpu=False)["machine.accelerators"] == (kind,)
