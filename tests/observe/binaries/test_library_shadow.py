"""Libraries that the loader would take instead of those of torch's wheels: its own search, followed in tiny files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elf_writer import shared_object, write_shared_object
from observing import a_layout, one
from rooms import observer

from envdoctor.facts import ABSENT, Records, Unknown

library_shadow = observer("library_shadow")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loader is that of Linux")


def toolkit(folder: Path, name: str, version: str) -> Path:
    """A library as a CUDA toolkit has it: a link to a file that carries its version."""
    real = write_shared_object(folder / f"{name.partition('.so')[0]}.so.{version}")
    (folder / name).symlink_to(real.name)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """torch 2.5.1 with its wheels, as far as the loader sees it: torch's own files have a DT_RPATH that leaves out
    nvjitlink, cuSPARSE has none, cuDNN a DT_RUNPATH."""
    folder = tmp_path / "packages"
    rpath = (
        ":".join(f"$ORIGIN/../../nvidia/{part}/lib" for part in ("cublas", "cudnn", "cusparse", "nccl")) + ":$ORIGIN"
    )
    lib, nvidia = folder / "torch" / "lib", folder / "nvidia"
    write_shared_object(lib / "libtorch_global_deps.so", needed=["libc.so.6"], rpath=rpath)
    write_shared_object(lib / "libtorch_python.so", needed=["libtorch_cuda.so", "libcudnn.so.9"], rpath=rpath)
    needed = ["libcublas.so.12", "libcusparse.so.12", "libnccl.so.2", "libcudnn.so.9"]
    write_shared_object(lib / "libtorch_cuda.so", needed=needed, rpath=rpath)
    write_shared_object(nvidia / "cublas" / "lib" / "libcublas.so.12")
    write_shared_object(nvidia / "nccl" / "lib" / "libnccl.so.2")
    write_shared_object(nvidia / "cusparse" / "lib" / "libcusparse.so.12", needed=["libnvJitLink.so.12"])
    write_shared_object(nvidia / "nvjitlink" / "lib" / "libnvJitLink.so.12")
    write_shared_object(nvidia / "cudnn" / "lib" / "libcudnn.so.9", runpath="$ORIGIN")
    write_shared_object(nvidia / "cudnn" / "lib" / "libcudnn_ops.so.9", runpath="$ORIGIN")
    return folder


VERSIONS = {
    "cublas": "12.4.5.8",
    "cudnn": "9.1.0.70",
    "cusparse": "12.3.1.170",
    "nccl": "2.21.5",
    "nvjitlink": "12.4.127",
}
WHEELS = Records(tuple({"name": f"nvidia-{name}-cu12", "version": version} for name, version in VERSIONS.items()))


@pytest.fixture
def found(site: Path, tmp_path: Path):
    """The records by library, for these variables."""

    def run(kind: str = "venv", live: bool = True, **environ: str):
        layout = a_layout(tmp_path, site, kind=kind, live=live)
        fact = one(library_shadow, layout, {"dist": WHEELS}, environ=environ)
        if not isinstance(fact.value, Records):
            return fact.value
        assert fact.value.incomplete is None
        return {item["library"]: item for item in fact.value}

    return run


def test_nothing_is_looked_at_without_variables(found, site):
    shutil.rmtree(site / "torch")
    assert found() == {}


def test_a_library_without_search_path_of_its_own_is_found_in_ld_library_path(found, tmp_path):
    folder = toolkit(tmp_path / "cuda-12.1" / "lib64", "libnvJitLink.so.12", "12.1.105")
    assert found(LD_LIBRARY_PATH=f"/nowhere:{folder}") == {
        "libnvJitLink.so.12": {
            "library": "libnvJitLink.so.12",
            "source": "LD_LIBRARY_PATH",
            "path": str(folder / "libnvJitLink.so.12"),
            "version": "12.1.105",
            "wheel": "nvidia-nvjitlink-cu12",
            "wheel_version": "12.4.127",
            "order": "older",
        }
    }


@pytest.mark.parametrize("name", ["libcublas.so.12", "libnccl.so.2", "libcusparse.so.12", "libcudnn.so.9"])
def test_rpath_of_torch_comes_before_ld_library_path(found, tmp_path, name):
    assert found(LD_LIBRARY_PATH=str(toolkit(tmp_path / "lib64", name, "1.2.3"))) == {}


@pytest.mark.parametrize(("version", "order"), [("9.5.1", "newer"), ("9.1.0", "same")])
def test_runpath_comes_after_ld_library_path(found, tmp_path, version, order):
    folder = toolkit(tmp_path / "lib64", "libcudnn_ops.so.9", version)
    item = found(LD_LIBRARY_PATH=str(folder))["libcudnn_ops.so.9"]
    assert (item["version"], item["wheel"], item["order"]) == (version, "nvidia-cudnn-cu12", order)


def test_a_preloaded_file_is_taken_before_everything(found, tmp_path):
    folder = toolkit(tmp_path / "lib64", "libnccl.so.2", "2.18.3")
    item = found(LD_PRELOAD=f"/nowhere/x.so {folder / 'libnccl.so.2'}")["libnccl.so.2"]
    assert (item["source"], item["order"]) == ("LD_PRELOAD", "older")


def test_a_conda_environment_has_its_library_folder_in_front_of_the_variable(found, tmp_path):
    toolkit(tmp_path / "lib", "libnvJitLink.so.12", "12.8.93")
    folder = toolkit(tmp_path / "lib64", "libnvJitLink.so.12", "12.1.105")
    item = found("conda", LD_LIBRARY_PATH=str(folder))["libnvJitLink.so.12"]
    assert (item["source"], item["order"]) == ("conda", "newer")


@pytest.mark.parametrize(
    "make", [lambda wheel, path: path.symlink_to(wheel), os.link, lambda wheel, path: path.symlink_to("gone")]
)
def test_links_to_the_wheels_file_and_broken_ones_shadow_nothing(found, site, tmp_path, make):
    wheel = site / "nvidia/nvjitlink/lib/libnvJitLink.so.12"
    assert found(LD_LIBRARY_PATH=str(wheel.parent)) == {}
    (tmp_path / "lib64").mkdir()
    make(wheel, tmp_path / "lib64" / "libnvJitLink.so.12")
    assert found(LD_LIBRARY_PATH=str(tmp_path / "lib64")) == {}


def test_the_toolkits_folder_tells_the_version_of_what_counts_with_cuda(found, tmp_path):
    for folder in ("cuda-12.1/lib64", "lib64"):
        write_shared_object(tmp_path / folder / "libnvJitLink.so.12")
    item = found(LD_LIBRARY_PATH=str(tmp_path / "cuda-12.1" / "lib64"))["libnvJitLink.so.12"]
    assert (item["version"], item["order"]) == ("12.1", "older")
    # A file that carries no version is of unknown order.
    assert isinstance(found(LD_LIBRARY_PATH=str(tmp_path / "lib64"))["libnvJitLink.so.12"]["order"], Unknown)


def test_a_damaged_library_leaves_the_list_open(site, tmp_path):
    (site / "nvidia/cusparse/lib/libcusparse.so.12").write_bytes(b"\x7fELF")
    folder = toolkit(tmp_path / "lib64", "libnvJitLink.so.12", "12.1.105")
    fact = one(library_shadow, a_layout(tmp_path, site), environ={"LD_LIBRARY_PATH": str(folder)})
    assert fact.value == Records((), "libcusparse.so.12 cannot be read: it is cut off")


def test_wheels_of_cuda_13_share_a_folder_and_are_told_apart_by_name(found, site, tmp_path):
    shutil.rmtree(site / "nvidia" / "nvjitlink")
    write_shared_object(site / "nvidia" / "cu13" / "lib" / "libnvJitLink.so.12")
    folder = toolkit(tmp_path / "lib64", "libnvJitLink.so.12", "12.1.105")
    assert found(LD_LIBRARY_PATH=str(folder))["libnvJitLink.so.12"]["wheel"] == "nvidia-nvjitlink-cu12"


def test_an_environment_of_another_machine_is_not_followed(found):
    assert isinstance(found(live=False), Unknown)


def test_torch_without_wheels_of_nvidia_has_nothing_to_shadow(found, site, tmp_path):
    shutil.rmtree(site / "nvidia")
    assert found(LD_LIBRARY_PATH=str(toolkit(tmp_path / "lib64", "libnccl.so.2", "2.18.3"))) == {}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
@pytest.mark.parametrize("ask", ["rpath", "runpath", "none"])
@pytest.mark.parametrize("asked", ["rpath", "runpath", "none"])
def test_the_real_loader_takes_the_same_files(tmp_path, ask, asked):
    """Built for real and loaded for real: libtorch_cuda.so asks for libcusparse.so.12, which asks for nvJitLink."""
    site, shadow = tmp_path / "packages", tmp_path / "lib64"

    def build(path: Path, kind: str, folder: str, *needs: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        tags = {"rpath": "-Wl,--disable-new-dtags", "runpath": "-Wl,--enable-new-dtags"}
        options = [tags[kind], f"-Wl,-rpath,{folder}"] if kind != "none" else []
        source = tmp_path / "empty.c"
        source.write_text("")
        command = ["gcc", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed", *options]
        subprocess.run([*command, "-o", str(path), str(source), *map(str, needs)], check=True)
        return path

    jit = build(site / "nvidia/nvjitlink/lib/libnvJitLink.so.12", "none", "")
    sparse = build(site / "nvidia/cusparse/lib/libcusparse.so.12", asked, "$ORIGIN/../../nvjitlink/lib", jit)
    rpath = "$ORIGIN/../../nvidia/cusparse/lib:$ORIGIN/../../nvidia/nvjitlink/lib"
    cuda = build(site / "torch/lib/libtorch_cuda.so", ask, rpath, sparse)
    for name in (jit.name, sparse.name):
        build(shadow / name, "none", "")
    program = (
        "import ctypes; ctypes.CDLL(" + repr(str(cuda)) + ");"
        "print('\\n'.join(sorted({line.split()[-1] for line in open('/proc/self/maps') if '.so.12' in line})))"
    )
    environ = {**os.environ, "LD_LIBRARY_PATH": str(shadow)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    real = {path for path in done.stdout.split() if path.startswith(str(shadow))}
    fact = one(library_shadow, a_layout(tmp_path, site), environ={"LD_LIBRARY_PATH": str(shadow)})
    assert {item["path"] for item in fact.value} == real
    assert all(item["wheel"] is ABSENT for item in fact.value)


@pytest.mark.parametrize(
    ("gives", "machine", "lacks"),
    [
        (["omp_other"], "x86_64", "omp_get_max_threads"),
        (["omp_get_max_threads", "omp_other"], "x86_64", None),
        (["omp_other"], "aarch64", None),
    ],
)
@pytest.mark.parametrize("of_system", [False, True])
def test_a_file_in_front_of_torchs_own_must_have_what_torch_takes(
    found, site, tmp_path, monkeypatch, gives, machine, lacks, of_system
):
    lib, front = site / "torch/lib", tmp_path / "front"
    place = tmp_path / "system" if of_system else lib
    place.mkdir(exist_ok=True)
    monkeypatch.setattr("envdoctor.observe.binaries.elf_file.SYSTEM_FOLDERS", [str(place)])
    (place / "libgomp.so.1").write_bytes(shared_object(gives=["omp_get_max_threads", "omp_more"]))
    asking = shared_object(asks=["omp_get_max_threads", "free"], needs=["libgomp.so.1"], runpath="$ORIGIN")
    (lib / "libtorch_global_deps.so").write_bytes(asking)
    front.mkdir()
    (front / "libgomp.so.1").write_bytes(shared_object(gives=gives, machine=machine))
    items = found(LD_LIBRARY_PATH=str(front))
    assert {name: item["lacks"] for name, item in items.items()} == ({"libgomp.so.1": lacks} if lacks else {})
