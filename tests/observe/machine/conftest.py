"""Machines to look at: a tree that stands for ``/``, and a stand-in for NVIDIA's library, compiled on the spot."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from observing import values
from rooms import observer

from envdoctor.facts import Value
from envdoctor.observe import Request
from envdoctor.observe.gather import gather

STUB = Path(__file__).with_name("nvml_stub.c")


class Machine:
    """A tree of files below ``root`` and the variables of a process on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}

    def file(self, path: str, text: str = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        return place

    def request(self, **changes: object) -> Request:
        request = Request(environ=self.environ, platform="linux", root=str(self.root))
        return request._replace(**changes)  # type: ignore[arg-type]

    def driver_facts(self, **changes: object) -> dict[str, Value]:
        """What is said of the driver and the GPUs; NVIDIA's library is not there unless it is named."""
        nvml = str(self.root / "none.so")
        return values(observer("driver").observe(self.request(**{"nvml_library": nvml, **changes})))

    def facts(self, **changes: object) -> dict[str, Value]:
        """All that is said of the machine."""
        return values(gather(self.request(**changes), ["machine"]))

    def gpu(self, place: str, model: str, minor: int, uuid: str = "GPU-????????-????-????-????-????????????") -> None:
        self.file(
            f"/proc/driver/nvidia/gpus/{place}/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 35\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n",
        )

    def driver(self, version: str = "550.54.15") -> None:
        self.file(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Mar  5 22:23:56 UTC 2024\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    root = tmp_path / "root"
    root.mkdir()
    return Machine(root)


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Compile the stand-in with the given macros; the path of the library."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    built: dict[tuple[tuple[str, object], ...], str] = {}

    def build(**macros: object) -> str:
        if compiler is None or sys.platform == "win32":
            pytest.skip("no C compiler for POSIX, so that no library can be built to stand in for NVML")
        key = tuple(sorted(macros.items()))
        if key not in built:
            path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
            defines = [f"-D{name}={value}" for name, value in macros.items()]
            subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), *defines, str(STUB)], check=True)
            built[key] = str(path)
        return built[key]

    return build
