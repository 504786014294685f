"""The driver and the GPUs: by NVML, by ``/proc`` without it, by the driver's libraries; and which GPUs are visible."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import cases

from envdoctor.facts import ABSENT, Records, Unknown

CASES = cases("driver.toml")


@pytest.fixture
def said(machine, nvml_stub):
    """What is said of the driver where its library behaves so."""
    machine.file("/dev/nvidiactl")
    return lambda **macros: machine.driver_facts(nvml_library=nvml_stub(**macros))


def test_two_gpus_are_described_with_all_columns(said):
    facts = said()
    assert (facts["driver.version"], facts["driver.max_cuda"]) == ("550.54.15", "12.4")
    columns = ("index", "name", "cc", "memory_gib", "free_gib", "processes", "uuid")
    assert [tuple(item[column] for column in columns) for item in facts["gpu"]] == [
        (0, "NVIDIA H100 80GB HBM3", "9.0", 80.0, 79.0, 0, "GPU-01111111-2222-3333-4444-555555555555"),
        (1, "NVIDIA GeForce RTX 3090", "8.6", 24.0, 20.0, 0, "GPU-11111111-2222-3333-4444-555555555555"),
    ]
    assert all(len(item) == len(columns) for item in facts["gpu"]) and facts["gpu"].incomplete is None


def test_a_library_that_is_not_there_or_is_no_library_is_a_reason(machine):
    path = machine.file("/dev/nvidiactl", "not an ELF file")
    for library in (path.with_name("libnvidia-ml.so.1"), path):
        facts = machine.driver_facts(nvml_library=str(library))
        assert facts["gpu"] == Unknown("the driver's library libnvidia-ml is not installed here")


@pytest.mark.parametrize(
    ("code", "words"),
    [(18, "driver/library version mismatch"), (9, "driver is not loaded"), (4, "no permission"), (77, "error 77")],
)
def test_a_refusal_at_the_start_is_named(said, code, words):
    facts = said(INIT=code)
    assert all(words in facts[key].reason for key in ("driver.version", "driver.max_cuda", "gpu"))
    assert (facts["driver.mismatch"] is True) == (code == 18)


def test_a_driver_that_hangs_costs_the_time_limit_and_no_more(machine, nvml_stub):
    machine.file("/dev/nvidiactl")
    facts = machine.driver_facts(nvml_library=nvml_stub(HANG=1), nvml_timeout=0.2)
    assert facts["gpu"] == Unknown("NVML did not answer in 0.2 s")


def test_what_nvml_cannot_tell_is_taken_from_proc(machine, said):
    machine.driver("550.54.14")
    machine.gpu("0000:01:00.0", "NVIDIA H100 80GB HBM3", 0)
    facts = said(INIT=18)
    assert facts["driver.version"] == "550.54.14"
    assert "version mismatch" in facts["driver.max_cuda"].reason
    (gpu,) = facts["gpu"]
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert "version mismatch" in gpu["cc"].reason


def test_an_unknown_highest_cuda_does_not_replace_the_gpus(machine, said):
    machine.driver()
    facts = said(CUDA_CODE=12)
    assert "libcuda is not here" in facts["driver.max_cuda"].reason
    assert [item["cc"] for item in facts["gpu"]] == ["9.0", "8.6"]


def test_a_forward_compatibility_libcuda_hides_what_the_driver_supports_its_own_does_not(machine, said):
    for version in ("555.42.02", "550.54.15"):
        library = machine.file(f"/{version}/libcuda.so.{version}")
        (library.parent / "libcuda.so.1").symlink_to(library.name)
    machine.environ["LD_LIBRARY_PATH"] = f"/nowhere:{machine.root}/555.42.02"
    assert "libcuda.so.555.42.02" in said()["driver.max_cuda"].reason
    machine.environ["LD_LIBRARY_PATH"] = f"{machine.root}/550.54.15"
    assert said()["driver.max_cuda"] == "12.4"


def test_a_gpu_that_this_user_may_not_open_is_not_seen_and_a_lost_one_stays_with_its_reason(said):
    gpus = said(HANDLE_1=4)["gpu"]
    assert ([item["index"] for item in gpus], gpus.incomplete) == ([0], None)
    assert "GPU is lost" in said(HANDLE_1=15)["gpu"].items[1]["name"].reason


def test_a_gpu_without_memory_of_its_own_keeps_the_other_columns(said):
    gpu = said(MEMORY_CODE=3)["gpu"].items[0]
    assert isinstance(gpu["memory_gib"], Unknown) and gpu["cc"] == "9.0"


def test_mig_makes_the_memory_and_the_list_uncertain(said):
    gpus = said(MIG=1)["gpu"]
    assert "MIG is on for GPU 0" in gpus.incomplete
    assert isinstance(gpus.items[0]["memory_gib"], Unknown)
    assert gpus.items[1]["memory_gib"] == 24.0


def test_processes_are_counted_without_reading_them_and_none_in_a_container_proves_nothing(machine, said):
    for macros in ({"PROCESSES": 3}, {"PROCESSES": 3, "OLD": 1}):
        assert said(**macros)["gpu"].items[0]["processes"] == 3
    machine.file("/.dockerenv")
    assert said()["gpu"].items[0]["processes"] == Unknown("a container does not show the processes of others")


def test_a_driver_version_that_is_none_is_unknown(said):
    assert isinstance(said(DRIVER="unreleased")["driver.version"], Unknown)


def test_a_machine_with_the_library_and_no_gpu_has_none(said):
    assert said(COUNT=0)["gpu"] == Records(())


def test_no_gpu_leaves_driver_libraries_and_gpus_unread(machine, nvml_stub):
    machine.driver()
    facts = machine.driver_facts(nvml_library=nvml_stub(), gpu=False)
    assert facts.pop("machine.accelerators") == ("nvidia",)
    assert len(facts) == 7 and set(facts.values()) == {Unknown("--no-gpu was given")}


def test_hidden_gpus_are_left_out_and_one_that_is_not_there_is_named(machine, said):
    machine.environ["CUDA_VISIBLE_DEVICES"] = ""
    facts = said()
    assert (facts["gpu"], facts["driver.version"]) == (Records(()), "550.54.15")
    machine.environ["CUDA_VISIBLE_DEVICES"] = "1,2"
    facts = said(SAME=1)
    assert facts["gpu.visible_missing"] == "2"
    assert [item["index"] for item in facts["gpu"]] == [1]


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


@pytest.mark.parametrize(("path", "kind"), CASES["accelerators_recognised_by"])
def test_accelerators_are_recognised_by_their_signs(machine, path, kind):
    machine.file(path)
    assert machine.facts(gpu=False)["machine.accelerators"] == (kind,)


USUAL, COMPAT = "/usr/lib/x86_64-linux-gnu", "/usr/local/cuda-13.0/compat"
#: The libraries of a driver whose module is of the same version.
OWN = {f"{USUAL}/libcuda": "550.54.15", f"{USUAL}/libnvidia-ml": "550.54.15"}
CONF = ("/etc/ld.so.conf.d/00-compat.conf", f"# forward compatibility\n{COMPAT}\n")


def library(machine, place: str, version: str) -> Path:
    """``libcuda.so.1`` as a link to ``libcuda.so.<version>``, as drivers and packages install it; its folder."""
    path = machine.file(f"{place}.so.{version}")
    (path.parent / f"{path.name.partition('.')[0]}.so.1").symlink_to(path.name)
    return path.parent


def seen(machine, **changes):
    facts = machine.driver_facts(**changes)
    return facts["driver.library"], facts["driver.compat"]


@pytest.mark.parametrize(("module", "libraries", "path", "found"), CASES["versions_those_files"])
def test_versions_are_those_of_the_files_that_the_loader_takes(machine, module, libraries, path, found):
    if module is not None:
        machine.driver(module)
    for place, version in libraries.items():
        library(machine, place, version)
    machine.environ["LD_LIBRARY_PATH"] = f"relative::/nowhere:{machine.root}{path}" if path else ""
    assert seen(machine) == found


@pytest.fixture
def driver(machine):
    """A driver whose module and libraries are of one version."""
    machine.driver("550.54.15")
    for place, version in OWN.items():
        library(machine, place, version)
    return machine


def test_a_compat_folder_of_ld_so_conf_comes_before_the_usual_ones(driver):
    library(driver, f"{COMPAT}/libcuda", "580.65.06")
    driver.file(*CONF)
    assert seen(driver) == ("550.54.15", "580.65.06")


def test_a_compat_libcuda_without_a_version_is_not_known(driver):
    driver.environ["LD_LIBRARY_PATH"] = str(driver.file("/usr/local/cuda/compat/libcuda.so.1").parent)
    assert isinstance(seen(driver)[1], Unknown)


def test_libraries_of_32_bits_are_passed_over(driver):
    library(driver, "/usr/lib/i386-linux-gnu/libnvidia-ml", "470.42.01")
    driver.file("/etc/ld.so.conf.d/i386-linux-gnu.conf", "/usr/lib/i386-linux-gnu\n")
    assert seen(driver)[0] == "550.54.15"


def test_the_library_of_wsl_has_no_version_in_its_name(machine):
    machine.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    machine.file("/usr/lib/wsl/lib/libnvidia-ml.so.1")
    machine.file("/usr/lib/wsl/lib/libcuda.so.1")
    assert seen(machine) == (Unknown("its file name holds no version"), ABSENT)


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_are_answered_without_looking(machine, platform):
    machine.environ.update(SystemRoot=str(machine.root), ProgramFiles=str(machine.root))
    assert seen(machine, platform=platform) == (ABSENT, ABSENT)


def test_a_mismatch_that_nvml_reports_leaves_version_and_library(driver, nvml_stub):
    assert driver.driver_facts(nvml_library=nvml_stub())["driver.mismatch"] is False
    driver.environ["LD_LIBRARY_PATH"] = str(library(driver, "/opt/new/libnvidia-ml", "550.163.01"))
    facts = driver.driver_facts(nvml_library=nvml_stub(INIT=18))
    assert facts["driver.mismatch"] is True
    assert (facts["driver.version"], facts["driver.library"]) == ("550.54.15", "550.163.01")


SAME = ("H100",) * 4


@pytest.fixture
def visible(machine):
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


@pytest.mark.parametrize(("setting", "found", "lost"), CASES["variable_means_cuda"])
def test_the_variable_means_what_cuda_says(visible, setting, found, lost):
    gpus, missing = visible(setting)
    assert (indices(gpus), missing) == (found, lost)


@pytest.mark.parametrize(
    ("setting", "environ", "found"),
    [("1", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [1]), ("1,0", {}, [1, 0]), ("-1", {}, []), ("GPU-1", {}, [1])],
)
def test_of_different_gpus_the_bus_order_all_none_and_uuids_are_certain(visible, setting, environ, found):
    assert indices(visible(setting, ("T4", "H100"), **environ)[0]) == found


def test_ordinals_of_different_gpus_are_ambiguous(visible):
    gpus, _ = visible("0", ("T4", "H100"))
    assert len(gpus) == 2 and "CUDA_DEVICE_ORDER=PCI_BUS_ID" in gpus.incomplete


def test_uuids_cannot_be_followed_when_they_are_unknown(visible):
    gpus, missing = visible("GPU-aa1", ("T4",), "GPU-????")
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
def test_no_setting_invents_a_gpu(visible, setting):
    gpus, missing = visible(setting)
    found = [item["index"] for item in gpus]
    assert len(set(found)) == len(found) and set(found) <= {0, 1, 2, 3}
    assert isinstance(missing, (str, type(ABSENT), Unknown))
