"""The operating system, containers and limits."""

import os
import sys

import pytest
from observing import values
from rooms import observer

from envdoctor.facts import ABSENT, Unknown
from envdoctor.observe import Request, platform_name

system = observer("system")


def here(environ):
    """What is said of this machine."""
    request = Request(environ=environ, platform=platform_name())
    return values(system.observe(request))


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
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1", "kubernetes"),
        ("APPTAINER_CONTAINER", "/images/a.sif", "apptainer"),
        ("container", "lxc", "lxc"),
        ("container", "\x1b[31mred", "unnamed"),
    ],
)
def test_containers_are_recognised_by_what_their_managers_leave_and_by_variables(machine, path, text, kind):
    if path.startswith("/"):
        machine.file(path, text)
    else:
        machine.environ[path] = text
    assert said(machine)["os.container"] == kind


def said(machine, **changes):
    return values(system.observe(machine.request(**changes)))


def test_no_sign_means_no_container_but_for_an_overlay_as_root(machine):
    machine.file("/proc/1/cgroup", "0::/init.scope\n")
    machine.file("/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")
    assert said(machine)["os.container"] is ABSENT
    machine.file("/proc/self/mounts", "overlay / overlay rw,lowerdir=/a 0 0\n")
    assert isinstance(said(machine)["os.container"], Unknown)


@pytest.mark.parametrize(
    ("release", "wsl"), [("5.15.153.1-microsoft-standard-WSL2\n", True), ("6.8.0-45-generic\n", False)]
)
def test_wsl_is_recognised_by_its_kernel(machine, release, wsl):
    machine.file("/proc/sys/kernel/osrelease", release)
    facts = said(machine)
    assert (facts["os.wsl"], facts["os.kernel"]) == (wsl, release.strip())


def test_musl_is_recognised_by_its_loader_and_alpines_package_list(machine):
    assert isinstance(said(machine)["os.libc"], Unknown)  # a Linux without either C library is not guessed
    machine.file("/lib/ld-musl-x86_64.so.1")
    facts = said(machine)
    assert facts["os.libc"] == "musl" and isinstance(facts["os.libc_version"], Unknown)
    machine.file("/lib/apk/db/installed", "C:Q1\nP:busybox\nV:1.36.1-r5\n\nC:Q2\nP:musl\nV:1.2.5-r0\nA:x86_64\n")
    facts = said(machine)
    assert (facts["os.libc"], facts["os.libc_version"]) == ("musl", "1.2.5")


@pytest.mark.parametrize("platform", ["darwin", "windows"])
def test_other_platforms_have_no_libc_to_name(machine, platform):
    facts = said(machine, platform=platform)
    assert (facts["os.libc"], facts["os.container"], facts["os.wsl"]) == (ABSENT, ABSENT, False)


def test_windows_architecture_is_the_machines_not_the_processes(machine):
    machine.environ.update(PROCESSOR_ARCHITECTURE="x86", PROCESSOR_ARCHITEW6432="AMD64")
    assert said(machine, platform="windows")["os.arch"] == "x86_64"


V1 = "memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("groups", "files", "gib"),
    [
        ("0::/user.slice\n", {"user.slice/memory.max": "max\n"}, 64.0),
        # the smallest limit of the groups above
        (
            "0::/slurm/job_1/step_0\n",
            {"slurm/job_1/step_0/memory.max": "max\n", "slurm/job_1/memory.max": 16, "slurm/memory.max": 32},
            16.0,
        ),
        ("0::/../../docker/0123\n", {"memory.max": 8}, 8.0),  # that of a container is at the mount
        ("9:name=systemd:/\n4:memory:/docker/0123\n0::/\n", {V1: 4}, 4.0),
        ("4:memory:/\n", {V1: "9223372036854771712\n"}, 64.0),  # without a limit in cgroup v1
        ("0::/a\nnonsense\n:::\n", {"a/memory.max": "٣٣\n"}, 64.0),
    ],
)
def test_memory_is_what_is_installed_or_the_limit_of_a_group(machine, groups, files, gib):
    machine.file("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\n")
    machine.file("/proc/self/cgroup", groups)
    for path, limit in files.items():
        machine.file(f"/sys/fs/cgroup/{path}", str(limit << 30) if isinstance(limit, int) else limit)
    assert values(system.observe(machine.request()))["os.memory_gib"] == gib


def test_memory_that_nobody_tells_is_unknown(machine):
    facts = values(system.observe(machine.request()))
    assert isinstance(facts["os.memory_gib"], Unknown) and facts["os.shm_gib"] is ABSENT


@linux
def test_this_machine_is_described_and_open_files_are_the_soft_limit():
    import resource

    facts = here(dict(os.environ))
    assert (facts["os.platform"], facts["os.arch"]) == ("linux", os.uname().machine)
    assert facts["os.memory_gib"] > 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert here({})["os.open_files"] == (ABSENT if soft == resource.RLIM_INFINITY else soft)
