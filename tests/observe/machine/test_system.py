"""The operating system, containers and limits; variables, none with a credential; and all sources together."""

import json
import os
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from observing import assert_registered, shipped, values
from rooms import observer
from tables import cases

from envdoctor.facts import ABSENT, Fact, FactSet, Unknown, public_facts
from envdoctor.observe import Request, platform_name
from envdoctor.observe.gather import gather

CASES = cases("system.toml")

system = observer("system")


def here(environ):
    """What is said of this machine."""
    request = Request(environ=environ, platform=platform_name())
    return values(system.observe(request))


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux' own files")


@pytest.mark.parametrize(("path", "text", "kind"), CASES["containers_recognised_by"])
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


@pytest.mark.parametrize(("groups", "files", "gib"), CASES["memory_installed_or"])
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


variables = observer("variables")

NAMES = shipped().registry.names("env")


def observed(**environ: str) -> dict[str, object]:
    request = Request(environ=environ, platform="linux", variables=NAMES)
    return values(variables.observe(request))


def test_a_variable_that_is_not_set_is_absent_and_one_that_is_set_to_nothing_is_empty():
    found = observed(CUDA_VISIBLE_DEVICES="")
    assert (found["env.CUDA_HOME"], found["env.CUDA_VISIBLE_DEVICES"]) == (ABSENT, "")


@pytest.mark.parametrize("name", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"])
def test_other_variables_never_appear(name):
    assert "SECRET-VALUE" not in repr(observed(**{name: "SECRET-VALUE"}))
    assert f"env.{name}" not in observed()


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("PIP_INDEX_URL", "https://me:pw@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "https://token@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "https://me:p@s/s:w@pypi.corp/simple", "https://***@pypi.corp/simple"),
        ("PIP_INDEX_URL", "me:pw@pypi.corp/simple", "***@pypi.corp/simple"),
        ("UV_INDEX_URL", "https://dl.corp/q1w2e3r4t5y6u7i8o9p0a1s2/org/simple", "https://dl.corp/***/org/simple"),
        ("UV_INDEX_URL", "https://host/t/abcdef0123456789/simple", "https://host/t/***/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://a/t/x-1 https://b/t/y_2/simple", "https://a/t/*** https://b/t/***/simple"),
        ("UV_INDEX_URL", "https://host/it/simple", "https://host/it/simple"),
        ("HF_ENDPOINT", "https://hf.corp/?access_token=abc&x=1", "https://hf.corp/?access_token=***&x=1"),
        ("HF_ENDPOINT", "https://hf.corp/?X-Amz-Signature=abc", "https://hf.corp/?X-Amz-Signature=***"),
        ("HF_ENDPOINT", "https://hf-mirror.com", "https://hf-mirror.com"),
        ("UV_DEFAULT_INDEX", "https://download.pytorch.org/whl/cu118", "https://download.pytorch.org/whl/cu118"),
        ("NCCL_SOCKET_IFNAME", "hf_abcdefghijklmnopqrstuvwxyz", "***"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:/opt/x", "/usr/local/cuda/lib64:/opt/x"),
        ("CUDA_HOME", "/opt/\udcff", "/opt/?"),
    ],
)
def test_credentials_are_removed_and_the_rest_is_kept(name, text, shown):
    assert observed(**{name: text})["env." + name] == shown


secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=30).map(lambda t: "S3" + t)


@given(st.sampled_from(sorted(NAMES)), st.sampled_from(["https", "http", "git+ssh"]), secrets, secrets)
@example("PIP_INDEX_URL", "https", "S3user00", "S3pa/ss@w:0")
def test_no_part_of_a_password_survives(name, scheme, user, password):
    shown = observed(**{name: f"{scheme}://{user}:{password}@host/simple"})[f"env.{name}"]
    assert shown == f"{scheme}://***@host/simple"


@given(st.sampled_from(sorted(NAMES)), st.text(max_size=300))
def test_any_value_can_be_written_as_json(name, text):
    json.dumps(observed(**{name: text})[f"env.{name}"], ensure_ascii=False).encode("utf-8")


def test_a_value_that_is_too_long_is_unknown():
    assert isinstance(observed(LD_LIBRARY_PATH="/x:" * 5000)["env.LD_LIBRARY_PATH"], Unknown)


@pytest.mark.parametrize(("name", "value", "kind"), CASES["exports_know_how"])
def test_exports_know_how_private_a_variable_is(name, value, kind):
    facts = public_facts(FactSet([Fact(f"env.{name}", value, "", "")]), shipped().registry)
    shown = facts.value(f"env.{name}")
    assert isinstance(shown, Unknown) if kind in ("path", "host") else shown == kind


def test_every_fact_is_registered_and_of_its_type(machine, nvml_stub):
    machine.environ.update(CUDA_HOME="/opt/cuda", OMP_NUM_THREADS="4")
    assert_registered(gather(machine.request(nvml_library=nvml_stub()), ["machine"]), "machine")


class _Broken(dict):
    def get(self, key, default=None):
        if key == "CUDA_HOME":
            raise RuntimeError("boom")
        return super().get(key, default)


def test_one_source_that_fails_leaves_the_others(machine):
    facts = machine.facts(environ=_Broken())
    assert facts["cuda.toolkit"] == Unknown("the observation cuda_toolkit failed: RuntimeError")
    assert facts["os.platform"] == "linux"
