"""However an environment is built, looking at it ends; what was left is said first, and is never a pass."""

import os
from pathlib import Path

import pytest
from elf_writer import shared_object

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.report import terminal_report
from envdoctor.revision import open_folder
from envdoctor.system import Budget

pytestmark = pytest.mark.skipif(os.name == "nt", reason="environments are laid out as on POSIX")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of packages of an environment that its files describe whole."""
    folder = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    settings = "home = /nowhere\nversion = 3.11.7\ninclude-system-site-packages = false\n"
    (tmp_path / "env" / "pyvenv.cfg").write_text(settings)
    return folder


def install(site: Path, name: str, *files: str) -> Path:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return info


def path_files(site: Path) -> None:
    """Every line of a .pth file may be a folder."""
    for number in range(10):
        (site / f"{number}.pth").write_text("a\n" * (1 << 17))


def metadata(site: Path) -> None:
    for number in range(700):
        os.truncate(install(site, f"p{number}") / "METADATA", 1 << 20)


def symbols(site: Path) -> None:
    """Each symbol is looked up in each library of torch, which may all be links to one."""
    lib = site / "torch" / "lib"
    lib.mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '1.0'\ncuda = None\n")
    for name in ("libc10.so", "libtorch_cpu.so"):
        (lib / name).write_bytes(shared_object(name=name, gives=["_ZN3c101fEv"]))
    for number in range(200):
        (lib / f"libtorch_{chr(97 + number // 20)}{chr(97 + number % 20)}.so").symlink_to("libtorch_cpu.so")
    install(site, "torch", "torch/version.py", *(f"torch/lib/{name}" for name in os.listdir(lib)))
    asks = [f"_ZN3c10{number + 10**6}Ev" for number in range(2_000)]
    module = "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    (site / module).write_bytes(shared_object(asks=asks, needs=["libtorch_cpu.so"]))
    install(site, "flash_attn", module)


def lists(site: Path) -> None:
    """Lists of files of one component of CUDA are compared with each other."""
    install(site, "torch", "torch/version.py")
    for number in range(90):
        install(site, f"nvidia_cudnn_cu{number}", *(f"nvidia/cudnn/lib/lib{at}.so.9" for at in range(3000)))


@pytest.mark.parametrize("build", [path_files, metadata, symbols, lists])
def test_all_that_is_looked_at_counts(site: Path, monkeypatch: pytest.MonkeyPatch, build) -> None:
    """The budget is a tenth of the real one here, as these environments are."""
    started = Budget.__init__
    tenth = {"seconds": 600.0, "size": 1 << 26, "steps": 100_000}
    monkeypatch.setattr(Budget, "__init__", lambda self, **given: started(self, **tenth))
    build(site)
    sources = Sources(python=str(site.parents[2]), gpu=False, cache=False, environ={}, cwd=site)
    try:
        report = check(sources)
    except Exception as error:
        assert "not read to the end" in str(error), error
    else:
        assert report.exit_code == 3
        assert "not read to the end" in terminal_report.render(report).splitlines()[0]


def test_of_many_large_files_a_gigabyte_is_hashed(tmp_path: Path) -> None:
    for number in range(20):
        with open(tmp_path / f"{number}.json", "wb") as file:
            file.truncate(60 << 20)
    files = open_folder(str(tmp_path)).files.values()
    assert sum(entry.size for entry in files if entry.oid is not None) <= 1 << 30
    assert any(entry.oid is None for entry in files)
