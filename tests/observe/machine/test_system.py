"""The operating system, containers and limits."""

from __future__ import annotations

import os
import sys

import pytest
from rooms import observer

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import Request, platform_name

limits = observer("limits")
system = observer("system")


def everything(environ):
    request = Request(environ=environ, platform=platform_name())
    return [*system.observe(request), *limits.observe(request)]


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux' own files")


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/.dockerenv", "", "docker"),
        ("/run/.containerenv", "", "podman"),
        ("/run/secrets/kubernetes.io/serviceaccount/namespace", "", "kubernetes"),
        ("/run/systemd/container", "systemd-nspawn\n", "systemd-nspawn"),
        ("/proc/1/cgroup", "0::/kubepods/besteffort/pod1\n", "kubernetes"),
        ("/proc/1/cgroup", "3:memory:/docker/0123\n", "docker"),
        ("/proc/1/cgroup", "0::/lxc.payload.box\n", "lxc"),
    ],
)
def test_containers_are_recognised_by_what_their_managers_leave(machine, path, text, kind):
    machine.file(path, text)
    assert system.container(machine.request()) == kind


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1", "kubernetes"),
        ("APPTAINER_CONTAINER", "/images/a.sif", "apptainer"),
        ("container", "lxc", "lxc"),
        ("container", "\x1b[31mred", "unnamed"),
    ],
)
def test_containers_are_recognised_by_their_variables(machine, name, value, kind):
    machine.environ[name] = value
    assert system.container(machine.request()) == kind


def test_no_sign_means_no_container(machine):
    machine.file("/proc/1/cgroup", "0::/init.scope\n")
    machine.file("/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    assert system.container(machine.request()) is ABSENT


def test_an_overlay_as_root_without_a_sign_is_not_decided(machine):
    machine.file("/proc/self/mounts", "overlay / overlay rw,lowerdir=/a 0 0\n")
    assert isinstance(system.container(machine.request()), Unknown)


@pytest.mark.parametrize(
    ("release", "wsl"), [("5.15.153.1-microsoft-standard-WSL2\n", True), ("6.8.0-45-generic\n", False)]
)
def test_wsl_is_recognised_by_its_kernel(machine, by_key, release, wsl):
    machine.file("/proc/sys/kernel/osrelease", release)
    facts = by_key(system.observe(machine.request()))
    assert facts["os.wsl"] is wsl
    assert facts["os.kernel"] == release.strip()


def test_musl_is_recognised_by_its_loader_and_alpines_package_list(machine, by_key):
    machine.file("/lib/ld-musl-x86_64.so.1")
    machine.file("/lib/apk/db/installed", "C:Q1\nP:busybox\nV:1.36.1-r5\n\nC:Q2\nP:musl\nV:1.2.5-r0\nA:x86_64\n")
    facts = by_key(system.observe(machine.request()))
    assert (facts["os.libc"], facts["os.libc_version"]) == ("musl", "1.2.5")


def test_a_musl_of_unknown_version_is_still_musl(machine, by_key):
    machine.file("/lib/ld-musl-aarch64.so.1")
    facts = by_key(system.observe(machine.request()))
    assert facts["os.libc"] == "musl"
    assert isinstance(facts["os.libc_version"], Unknown)


def test_a_linux_without_either_c_library_is_not_guessed(machine, by_key):
    assert isinstance(by_key(system.observe(machine.request()))["os.libc"], Unknown)


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_have_no_libc_to_name(machine, by_key, platform):
    facts = by_key(system.observe(machine.request(platform=platform)))
    assert facts["os.libc"] is ABSENT
    assert facts["os.container"] is ABSENT
    assert facts["os.wsl"] is False


def test_windows_architecture_is_the_machines_not_the_processes(machine, by_key):
    machine.environ.update(PROCESSOR_ARCHITECTURE="x86", PROCESSOR_ARCHITEW6432="AMD64")
    assert by_key(system.observe(machine.request(platform="windows")))["os.arch"] == "x86_64"


def memory(machine, by_key):
    machine.file("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\n")
    return by_key(limits.observe(machine.request()))["os.memory_gib"]


def test_memory_is_the_installed_memory_without_a_limit(machine, by_key):
    machine.file("/proc/self/cgroup", "0::/user.slice\n")
    machine.file("/sys/fs/cgroup/user.slice/memory.max", "max\n")
    assert memory(machine, by_key) == 64.0


def test_memory_is_the_smallest_limit_of_the_groups_above(machine, by_key):
    machine.file("/proc/self/cgroup", "0::/slurm/job_1/step_0\n")
    machine.file("/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n")
    machine.file("/sys/fs/cgroup/slurm/job_1/memory.max", str(16 << 30))
    machine.file("/sys/fs/cgroup/slurm/memory.max", str(32 << 30))
    assert memory(machine, by_key) == 16.0


def test_memory_limit_of_a_container_is_at_the_mount(machine, by_key):
    machine.file("/proc/self/cgroup", "0::/../../docker/0123\n")
    machine.file("/sys/fs/cgroup/memory.max", str(8 << 30))
    assert memory(machine, by_key) == 8.0


def test_memory_limit_of_cgroup_v1_is_read(machine, by_key):
    machine.file("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/0123\n0::/\n")
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", str(4 << 30))
    assert memory(machine, by_key) == 4.0


def test_the_no_limit_of_cgroup_v1_is_no_limit(machine, by_key):
    machine.file("/proc/self/cgroup", "4:memory:/\n")
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory(machine, by_key) == 64.0


def test_a_limit_that_is_no_number_is_passed_over(machine, by_key):
    machine.file("/proc/self/cgroup", "0::/a\nnonsense\n:::\n")
    machine.file("/sys/fs/cgroup/a/memory.max", "٣٣\n")
    assert memory(machine, by_key) == 64.0


def test_memory_that_nobody_tells_is_unknown(machine, by_key):
    facts = by_key(limits.observe(machine.request()))
    assert isinstance(facts["os.memory_gib"], Unknown)
    assert facts["os.shm_gib"] is ABSENT


@linux
def test_this_machine_is_described():
    facts = {fact.key: fact.value for fact in everything(dict(os.environ))}
    assert facts["os.platform"] == "linux"
    assert facts["os.memory_gib"] > 0
    assert facts["os.arch"] == os.uname().machine


@linux
def test_open_files_are_the_soft_limit():
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    facts = {fact.key: fact.value for fact in everything({})}
    assert facts["os.open_files"] == (ABSENT if soft == resource.RLIM_INFINITY else soft)
