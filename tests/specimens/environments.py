"""Builds environments out of recorded wheels: folders that look installed, with stand-ins for their libraries."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import stand_ins

from envdoctor.matrix import load_toml

RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "environments"
_COMPILED = re.compile(r"\.so(\.[\d.]+)?\Z")
#: Folders that imports find, for the packages whose place on the import path a specimen is about.
_FOLLOWED = ("accelerate", "datasets", "numpy", "peft", "safetensors", "tokenizers", "torch", "transformers", "trl")
#: The modules of the stack by their distributions: others are compiled, so that no import in them is followed.
_MODULES = {
    row["name"].replace("-", "_"): row["module"]
    for row in load_toml(RECORDED.parents[1] / "matrices/tables/stack-modules.toml")["module"]
}


class Recording(NamedTuple):
    """One recorded environment: its name, and what its file says."""

    name: str
    said: Mapping[str, Any]


class Built(NamedTuple):
    """An environment on disk. ``option`` and ``target`` are how envdoctor is pointed at it, ``site`` its first folder
    of packages, ``home`` the folder that holds everything, and ``environ`` the variables of whoever uses it."""

    home: Path
    site: Path
    option: str
    target: Path
    environ: dict[str, str]


class _Layout(NamedTuple):
    """Where a kind of environment keeps things, below its home. ``{minor}`` and ``{version}`` are its Python's."""

    site: str
    option: str
    target: str
    files: Mapping[str, str]
    environ: Mapping[str, str] = {}


LAYOUTS = {name: _Layout(**said) for name, said in load_toml(Path(__file__).with_name("layouts.toml")).items()}


def recordings(folder: str = "healthy") -> list[Recording]:
    """The recorded environments, by name."""
    return [Recording(path.stem, load_toml(path)) for path in sorted((RECORDED / folder).glob("*.toml"))]


class Store:
    """Wheels as they are after an installation, unpacked once; environments are hard links to them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stems = sorted(path.name for path in (RECORDED / "wheels").iterdir())

    def find(self, wanted: str, python: str) -> str:
        """The recorded wheel of ``name==version`` for this Python, or the one that is named in full."""
        if wanted in self._stems:
            return wanted
        name, _, version = wanted.partition("==")
        start = f"{re.sub('[-.]+', '_', name)}-{version}-".lower()
        fitting = [stem for stem in self._stems if stem.lower().startswith(start)]
        tag = "cp" + "".join(python.split(".")[:2])
        fitting.sort(key=lambda stem: (f"-{tag}-" not in stem, "aarch64" in stem))
        assert fitting, f"{wanted} is not recorded in {RECORDED / 'wheels'}"
        return fitting[0]

    def unpacked(self, stem: str, torch: str, installer: str) -> Path:
        """The folder with the files of one wheel. ``torch`` is the release that its modules are compiled for, unless
        its own metadata pins another one."""
        folder = self._folder / f"{stem}@{torch}@{installer}"
        if not folder.exists():
            self._unpack(RECORDED / "wheels" / stem, folder, torch, installer)
        return folder

    def _unpack(self, recorded: Path, folder: Path, torch: str, installer: str) -> None:
        name, version, *_, python, abi, platform = recorded.name.split("-")  # a build number may stand between
        metadata = (recorded / "METADATA").read_text(encoding="utf-8")
        info = f"{name}-{version}.dist-info"
        for path in sorted(recorded.rglob("*")):
            inner = path.relative_to(recorded).as_posix()
            if path.is_file() and inner not in ("METADATA", "RECORD"):
                write(folder / inner, path.read_bytes())
        listed = (recorded / "RECORD").read_text().splitlines() if (recorded / "RECORD").is_file() else []
        pinned = re.search(r"^Requires-Dist: torch \(?==(\d[\d.]*)", metadata, re.MULTILINE) or re.search(
            r"^Requires-Dist: torch==(\d[\d.]*)", metadata, re.MULTILINE
        )
        for line in listed:
            inner = line.partition(",")[0]
            if _COMPILED.search(inner):
                write(folder / inner, self._compiled(inner, recorded, version, pinned[1] if pinned else torch))
        if name in _FOLLOWED:
            write(folder / name / "__init__.py", "")
            listed.append(f"{name}/__init__.py,,")
        elif module := _MODULES.get(name.lower()):
            write(folder / f"{module}.so", stand_ins.library(f"{module}.so", torch))
        write(folder / info / "METADATA", metadata)
        write(folder / info / "INSTALLER", f"{installer}\n")
        expanded = [f"Tag: {one}-{abi}-{other}" for one in python.split(".") for other in platform.split(".")]
        write(folder / info / "WHEEL", "\n".join(["Wheel-Version: 1.0", "Root-Is-Purelib: true", *expanded, ""]))
        listed += [f"{info}/{file},," for file in ("METADATA", "INSTALLER", "WHEEL", "RECORD")]
        write(folder / info / "RECORD", "\n".join(listed) + "\n")

    def _compiled(self, inner: str, recorded: Path, version: str, torch: str) -> bytes:
        machine = "aarch64" if "aarch64" in recorded.name else "x86_64"
        package, _, file = inner.partition("/")
        if package == "torch":
            return stand_ins.library(Path(inner).name, version, machine)
        if package in ("torchvision", "torchaudio", "xformers", "vllm"):
            said = (
                (recorded / package / "version.py").read_text() if (recorded / package / "version.py").is_file() else ""
            )
            return stand_ins.extension(torch, cuda="+cpu" not in said, machine=machine)
        return stand_ins.library(Path(file).name, torch, machine)


def build(said: Mapping[str, Any], home: Path, store: Store, *, interpreter: Path | None = None) -> Built:
    """The environment that a recording describes, below ``home``.

    With an ``interpreter`` a virtual environment is made from it, so that other tools can look at it; otherwise there
    is none that could be started.
    """
    version = said["python"]
    words = {"home": str(home), "version": version, "minor": ".".join(version.split(".")[:2])}
    layout = LAYOUTS[said.get("layout", "venv")]
    for name, text in layout.files.items():
        write(home / name.format_map(words), text.format_map(words))
    site = home / layout.site.format_map(words)
    site.mkdir(parents=True, exist_ok=True)
    if interpreter is not None:
        (home / "env" / "bin").mkdir()
        (home / "env" / "bin" / "python").symlink_to(interpreter)
        config = home / "env" / "pyvenv.cfg"
        text = config.read_text().replace(f"{home}/base/bin", str(interpreter.parent))
        config.write_text(text)
    stems = [store.find(wanted, version) for wanted in said.get("wheels", ())]
    torch = _release_of_torch(stems, said)
    for stem in stems:
        link(store.unpacked(stem, torch, said.get("installer", "pip")), site)
    for package in said.get("package", ()):
        package_of(package, home, site, torch)
    for file in said.get("file", ()):
        write(place(file["path"], home, site), file.get("text", "").format_map(words))
    for file in said.get("elf", ()):
        path = place(file["path"], home, site)
        write(path, stand_ins.library(path.name, torch))
    for name in said.get("conda", ()):
        write(home / "env" / "conda-meta" / f"{name}.json", "{}")
    environ = {key: text.format_map(words) for key, text in {**layout.environ, **said.get("environ", {})}.items()}
    target = home / layout.target.format_map(words)
    return Built(home, site, layout.option, target, environ)


def _release_of_torch(stems: Iterable[str], said: Mapping[str, Any]) -> str:
    described = [package["version"] for package in said.get("package", ()) if package["name"] == "torch"]
    return next((stem.split("-")[1] for stem in stems if stem.startswith("torch-")), (described or ["2.0"])[0])


def package_of(package: Mapping[str, Any], home: Path, site: Path, torch: str) -> None:
    """Install a package that is described in place: name, version, requirements, and compiled files."""
    folder = place(package["in"], home, site) if "in" in package else site
    name, version = package["name"].replace("-", "_"), package["version"]
    kind = package.get("kind", "dist-info")
    info = f"{name}-{version.replace('-', '_')}.{kind}"
    head = ["Metadata-Version: 2.1", f"Name: {package['name']}", f"Version: {version}"]
    head += [f"Requires-Python: {package['python']}"] if "python" in package else []
    head += [f"Requires-Dist: {line}" for line in package.get("requires", ())]
    write(folder / info / ("METADATA" if kind == "dist-info" else "PKG-INFO"), "\n".join(head) + "\n\n")
    listed = []
    if (module := _MODULES.get(name.lower())) and not (folder / module).exists():
        write(folder / f"{module}.so", stand_ins.library(f"{module}.so", torch))
    for file, text in package.get("files", {}).items():
        write(folder / file, text)
        listed.append(file)
    for file in package.get("compiled", ()):
        is_torch = file.startswith("torch/")
        content = (
            stand_ins.library(Path(file).name, version if is_torch else torch)
            if is_torch or package.get("plain")
            else stand_ins.extension(package.get("built_for", torch), **package.get("elf", {}))
        )
        write(folder / file, content)
        listed.append(file)
    if kind == "dist-info":
        write(folder / info / "INSTALLER", package.get("installer", "pip") + "\n")
        tag = package.get("tag", "py3-none-any")
        write(folder / info / "WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        listed += [f"{info}/{file}" for file in ("METADATA", "INSTALLER", "WHEEL", "RECORD")]
        write(folder / info / "RECORD", "".join(f"{file},,\n" for file in listed))


def place(path: str, home: Path, site: Path) -> Path:
    """``@/user/x`` lies below the home folder, anything else below the folder of packages."""
    return home / path[2:] if path.startswith("@/") else site / path


def write(path: Path, content: str | bytes) -> None:
    """Write a file anew: what is there may be a hard link to one that others share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def link(source: Path, target: Path) -> None:
    """Lay a folder over another one, by hard links. What is already there stays."""
    for folder, _, files in os.walk(source):
        inner = target / Path(folder).relative_to(source)
        inner.mkdir(parents=True, exist_ok=True)
        for file in files:
            if not (inner / file).exists():  # namespace packages share files of one name, as nvidia/__init__.py
                os.link(Path(folder) / file, inner / file)


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders."""
    for path in paths:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
