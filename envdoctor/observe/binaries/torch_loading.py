"""Whether torch's own libraries can be loaded: none of them cut off, and NVIDIA's libraries that they ask for found.

The search is wider than the loader's (ld.so(8)): a library counts as there when it lies in any folder that torch's
files name, in NVIDIA's wheels along the import path, in LD_LIBRARY_PATH, in a conda environment, or with the system.
torch itself looks through sys.path for the wheels when its first library does not load (``_preload_cuda_deps`` in
torch/__init__.py of 2.4.1 to 2.9.1).
"""

import os
import stat
import sys
from collections.abc import Mapping, Sequence

from envdoctor.facts.values import Fact, Unknown, Value
from envdoctor.observe.locate.layout import Layout
from envdoctor.observe.request import Request
from envdoctor.system.message import Message

KEYS = ("torch.damaged_files", "torch.missing_libraries")
NEEDS = ("pkg.*", "torch.cuda", "package_damage")
#: What importing torch loads, in all wheels for Linux from 2.0 on; those for CUDA are in CUDA builds only.
_LOADED = (
    "libtorch_global_deps.so",
    "libc10.so",
    "libtorch_cpu.so",
    "libtorch.so",
    "libtorch_python.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
)
#: Names of NVIDIA's wheels. What is bundled with torch has a hash in its name (libcusparseLt-294d6944.so.0).
_NVIDIA = frozenset(
    f"lib{name}"
    for name in (
        *("cudart", "cublas", "cublasLt", "cudnn", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse"),
        *("cusparseLt", "nccl", "nvJitLink", "nvrtc", "nvshmem_host", "nvToolsExt"),
    )
)
_MOST_FOLDERS = 256


def observe(request: Request) -> list[Fact]:
    """The facts of ``KEYS``; none without torch."""
    if "pkg.torch" not in request.facts:
        return []
    here = request.place.live and sys.platform.startswith("linux")
    damaged, missing = torch_loading_facts(request.value("torch.cuda"), request.place, request.environ, here=here)
    if any(item["package"] == "torch" for item in request.items("package_damage")):
        damaged = damaged._replace(value=())  # it is told there, with all that differs from its list
    return [damaged, missing]


def torch_loading_facts(
    cuda: Value, layout: Layout, environ: Mapping[str, str], *, here: bool, system: str = ""
) -> list[Fact]:
    """The facts ``torch.damaged_files`` and ``torch.missing_libraries``.

    ``cuda`` is the fact ``torch.cuda``; ``here`` says that the environment would run on this machine, which is a Linux.
    ``system`` is put before the system's own paths (a test's own tree).
    """
    files = layout.files
    home = next((folder for folder in layout.site_packages if "torch" in files.names_or_none(folder)), None)
    folder = os.path.join(home or "", "torch", "lib")
    there = frozenset(files.names_or_none(folder)) if home else frozenset()
    names = [name for name in _LOADED if name in there]
    if not names:
        nothing = Unknown(Message("torch/lib has no library for Linux"))
        return _facts(nothing, nothing)
    from envdoctor.observe.binaries.reading.elf_file import ElfError, ElfFile

    damaged: list[str] = []
    wanted: dict[str, None] = {}
    paths: dict[str, None] = {}
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = files.status(path)
            if not stat.S_ISREG(status.st_mode):
                damaged.append(Message("torch/lib/{} (it is not a regular file)", name))
            elif not status.st_size:
                damaged.append(Message("torch/lib/{} (it is empty)", name))
            else:
                with ElfFile(path, files) as file:
                    wanted.update(dict.fromkeys(one for one in file.needed if _is_nvidias(one)))
                    paths.update(dict.fromkeys(one for both in file.search_paths() for one in both))
        except ElfError as error:
            if error.damaged:
                damaged.append(f"torch/lib/{name} ({error})")
        except OSError:
            continue  # gone, or not for us to read: package_damage
    missing: Value
    if not here or not isinstance(cuda, str):
        missing = Unknown(Message("only a CUDA build that would run on this Linux machine is looked at"))
    elif not any("/nvidia/" in path for path in paths):
        missing = Unknown(Message("this torch does not look for its CUDA libraries in NVIDIA's wheels"))
    else:
        missing = tuple(_not_in([_place(path, folder) for path in paths], list(wanted), layout))
        if missing:
            missing = _nowhere(missing, _other_folders(list(paths), folder, layout, environ), layout, environ, system)
        if missing and layout.incomplete is not None:
            missing = Unknown(layout.incomplete)
    return _facts(tuple(damaged), missing)


def _facts(*values: Value) -> list[Fact]:
    return [Fact(key, value, "torch/lib", "environment") for key, value in zip(KEYS, values, strict=True)]


def _other_folders(paths: list[str], folder: str, layout: Layout, environ: Mapping[str, str]) -> list[str]:
    files = layout.files
    # A torch that is reached by a link: what lies beside its real folder counts too.
    origins = [os.path.dirname(files.resolved(os.path.join(folder, "libtorch_cuda.so")))]
    origins += [os.path.join(site, "torch", "lib") for site in layout.site_packages]
    folders = [_place(path, origin) for origin in origins for path in paths]
    for site in layout.site_packages:
        nvidia = os.path.join(site, "nvidia")
        folders += [os.path.join(nvidia, part, "lib") for part in files.names_or_none(nvidia)[:_MOST_FOLDERS]]
    folders += [path for path in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if path]
    return [*folders, os.path.join(layout.prefix, "lib")]


def _nowhere(
    names: Sequence[str], folders: list[str], layout: Layout, environ: Mapping[str, str], system: str
) -> tuple[str, ...]:
    """Those that are in none of the folders, not preloaded, and not with the system."""
    from envdoctor.observe.binaries.reading.elf_file import LOADER_CACHE, SYSTEM_FOLDERS, cached_library

    preloaded = {os.path.basename(path) for path in environ.get("LD_PRELOAD", "").replace(":", " ").split()}
    places = [*folders, *(system + place for place in SYSTEM_FOLDERS)]
    return tuple(
        name
        for name in _not_in(places, [name for name in names if name not in preloaded], layout)
        if not any(os.path.isfile(system + path) for path in cached_library(name, system + LOADER_CACHE))
    )


def _is_nvidias(name: str) -> bool:
    stem, _, major = name.partition(".so.")
    return stem in _NVIDIA and major.isdigit()


def _place(path: str, origin: str) -> str:
    return os.path.normpath(path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))


def _not_in(folders: list[str], names: list[str], layout: Layout) -> list[str]:
    """The names that no folder has; a link whose file is gone does not count."""
    for folder in dict.fromkeys(folders):
        there = layout.files.names_or_none(folder) if names else []
        names = [name for name in names if name not in there or not layout.files.is_file(os.path.join(folder, name))]
    return names
