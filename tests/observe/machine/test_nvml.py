"""NVML: what the driver's library says, and what becomes of its refusals."""

import sys

import pytest

from envdoctor.facts import Records, Unknown

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in library is built for POSIX")


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
