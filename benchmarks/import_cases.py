"""Environments that are broken at random: stacks of real wheels in which one to three packages are other releases.

Every case is drawn from its seed and number alone, among the final releases of YEARS that have a wheel for this
Python. Two of three are *hidden*: releases are drawn until every requirement that any installed package declares is
met, so that `uv pip check` has nothing to say.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.parser import HeaderParser
from functools import cache, cached_property
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

TORCH = "torch==2.13.0"
#: What the two stacks are made of beside torch, to the last package: releases of autumn 2025, and of autumn 2026.
STACKS = {path.stem: path for path in sorted((ROOT / "benchmarks" / "stacks").glob("*.txt"))}
#: What is replaced: six times in ten what every training script imports, three times what stands beside it, and else
#: what lies below.
CORE = (
    "transformers",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "diffusers",
    "sentence-transformers",
    "huggingface-hub",
)
BESIDE = (
    "tokenizers",
    "safetensors",
    "evaluate",
    "optimum",
    "gradio",
    "gradio-client",
    "lightning",
    "pytorch-lightning",
    "torchmetrics",
    "torchao",
    "kernels",
)
BELOW = (
    "numpy",
    "pandas",
    "pydantic",
    "pydantic-core",
    "fsspec",
    "dill",
    "multiprocess",
    "httpx",
    "requests",
    "typing-extensions",
    "packaging",
    "filelock",
    "regex",
    "tqdm",
    "jinja2",
    "pillow",
    "scikit-learn",
    "fastapi",
    "starlette",
)
YEARS = ("2023-01-01", "2026-11-20")
#: Larger wheels are left alone.
MOST_BYTES = 50 << 20


class Release(NamedTuple):
    """A release and the wheel that fits."""

    version: str
    link: Any


class Case(NamedTuple):
    """A drawn environment: ``pins`` are the releases that replace those of the stack."""

    seed: int
    number: int
    stack: str
    pins: Mapping[str, str]
    hidden: bool

    def __str__(self) -> str:
        pins = " ".join(f"{name}=={version}" for name, version in self.pins.items())
        return f"{self.seed}-{self.number} {self.stack} {pins}"


class Workshop:
    """A folder with the stacks, the unpacked wheels and what is known of released ones; used by one run at a time."""

    def __init__(self, home: Path, uv: str) -> None:
        self.home = home
        self.uv = uv
        for part in ("metadata", "unpacked", "home"):
            (home / part).mkdir(parents=True, exist_ok=True)
        self.releases: dict[str, list[Release]] = {}

    @cached_property
    def index(self) -> Any:
        """The configured package indexes."""
        from package_index import Index

        return Index()

    def draw(self, seed: int, number: int) -> Case:
        """The case of this number; remembered, because an index grows."""
        path = self.home / f"seed-{seed}" / f"{number:03}-drawn.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(self._drawn(random.Random(f"{seed}-{number}"), number % 3 != 0)))
        return Case(seed, number, **json.loads(path.read_text()))

    def _drawn(self, dice: random.Random, hidden: bool) -> dict[str, Any]:
        while True:
            stack = dice.choice(sorted(STACKS))
            installed = requirements_of(site_of(self.stack(stack)))
            groups = dice.choices((CORE, BESIDE, BELOW), (6, 3, 1), k=dice.choice((1, 1, 2, 2, 3)))
            names = [dice.choice(group) for group in groups]
            pins: dict[str, str] = {}
            for name in dict.fromkeys(names):
                found = self._release(name, installed, dice, hidden) if name in installed else None
                if found is not None:
                    pins[name] = found
                    installed[name] = (found, self.metadata(name, found)["requires"])
            if pins:
                return {"stack": stack, "pins": pins, "hidden": hidden}

    def _release(
        self, name: str, installed: Mapping[str, tuple[str, Sequence[str]]], dice: random.Random, hidden: bool
    ) -> str | None:
        """Another release of a package; a hidden one leaves every requirement met."""
        candidates = [found.version for found in self.all_releases(name) if found.version != installed[name][0]]
        dice.shuffle(candidates)
        for version in candidates[:12]:
            data = self.metadata(name, version)
            if data["bytes"] <= MOST_BYTES and not (
                hidden and any(unmet({**installed, name: (version, data["requires"])}))
            ):
                return version
        return None

    def all_releases(self, name: str) -> list[Release]:
        """The final releases of YEARS with a wheel for this Python and machine, in rising order."""
        if name not in self.releases:
            tags = set(sys_tags())
            found: dict[Version, Release] = {}
            for link in self.index.files(name):
                try:
                    _, version, _, wheel_tags = parse_wheel_filename(link.filename)
                except InvalidWheelFilename:
                    continue
                if not hasattr(link, "upload_time"):
                    raise SystemExit("pip 26 or newer is needed: an older one does not tell the day of a file")
                day = str(link.upload_time or "")[:10]
                fits = bool(tags & wheel_tags) and YEARS[0] <= day <= YEARS[1]
                if fits and not version.is_prerelease and link.yanked_reason is None:
                    found.setdefault(version, Release(str(version), link))
            self.releases[name] = [found[version] for version in sorted(found)]
        return self.releases[name]

    def metadata(self, name: str, version: str) -> Mapping[str, Any]:
        """Size and requirements of a release, read from its wheel by byte ranges and kept."""
        path = self.home / "metadata" / f"{name}-{version}.json"
        if not path.exists():
            from pip._internal.network.lazy_wheel import LazyZipOverHTTP

            link = next(found.link for found in self.all_releases(name) if found.version == version)
            lazy: Any = LazyZipOverHTTP(link.url_without_fragment, self.index.client)
            with lazy, ZipFile(lazy) as wheel:
                member = next(item for item in wheel.namelist() if item.endswith(".dist-info/METADATA"))
                headers = HeaderParser().parsestr(wheel.read(member).decode())
                data = {"bytes": lazy._length, "requires": headers.get_all("Requires-Dist", [])}
            path.write_text(json.dumps(data))
        return json.loads(path.read_text())

    def stack(self, name: str) -> Path:
        """The virtual environment of a stack, built when it is not there."""
        folder = self.home / f"stack-{name}"
        if not folder.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            python = str(folder / "bin" / "python")
            subprocess.run([python, "-m", "pip", "install", "-q", TORCH], check=True)
            torch = requirements_of(site_of(folder))["torch"][0]
            packages = [f"torch=={torch}", "-r", str(STACKS[name])]
            subprocess.run([self.uv, "pip", "install", "-q", "--python", python, *packages], check=True)
        return folder

    def unpacked(self, name: str, version: str) -> Path:
        """The folder of a wheel's content."""
        folder = self.home / "unpacked" / f"{name}-{version}"
        if not folder.exists():
            wanted = ["--no-deps", "--only-binary", ":all:", "--target", f"{folder}.part", f"{name}=={version}"]
            subprocess.run([self.uv, "pip", "install", "-q", "--python", sys.executable, *wanted], check=True)
            Path(f"{folder}.part").rename(folder)
        return folder

    def build(self, case: Case, folder: Path) -> None:
        """A virtual environment of its own for a case, made of hard links."""
        subprocess.run(["cp", "-al", self.stack(case.stack), folder], check=True)
        for entry in replaced_entries(site_of(folder), case.pins):
            remove(site_of(folder) / entry)
        self.put(case, site_of(folder))

    def put(self, case: Case, site: Path) -> None:
        """Links to the content of the case's wheels."""
        for name, version in case.pins.items():
            for entry in sorted(self.unpacked(name, version).iterdir()):
                if entry.name not in ("bin", ".lock", "share", "etc"):
                    subprocess.run(["cp", "-al", entry, site], check=True)


class Bench:
    """One tree of hard links for each stack, in which packages are exchanged and put back."""

    def __init__(self, workshop: Workshop, folder: Path) -> None:
        self.workshop = workshop
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    @contextmanager
    def mounted(self, case: Case) -> Iterator[Path]:
        """The virtual environment with the releases of the case in their places, as long as the context lasts."""
        tree = self.folder / case.stack
        if not tree.exists():
            subprocess.run(["cp", "-al", self.workshop.stack(case.stack), tree], check=True)
        site, aside = site_of(tree), self.folder / "aside"
        aside.mkdir()
        for entry in replaced_entries(site, case.pins):
            os.rename(site / entry, aside / entry)
        self.workshop.put(case, site)
        try:
            yield tree
        finally:
            for entry in replaced_entries(site, case.pins):
                remove(site / entry)
            for path in list(aside.iterdir()):
                os.rename(path, site / path.name)
            aside.rmdir()


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def site_of(environment: Path) -> Path:
    """The folder of the installed packages."""
    return next(environment.glob("lib/python3.*/site-packages"))


def replaced_entries(site: Path, names: Iterable[str]) -> set[str]:
    """The entries of site-packages that belong to these distributions alone."""
    owners: dict[str, set[str]] = {}
    for found in installed_in(site):
        for entry in found.entries:
            owners.setdefault(entry, set()).add(found.name)
    wanted = set(names)
    shared = [entry for entry, by in owners.items() if by & wanted and by - wanted]
    if shared:
        raise SystemExit(f"{shared[0]} belongs to several distributions: {owners[shared[0]]}")
    return {entry for entry, by in owners.items() if by & wanted and (site / entry).exists()}


class Installed(NamedTuple):
    """A distribution: ``entries`` are the first parts of its files below site-packages, ``modules`` those of its
    code."""

    name: str
    version: str
    requires: Sequence[str]
    entries: frozenset[str]
    modules: frozenset[str]


def installed_in(site: Path) -> list[Installed]:
    """The distributions in a folder."""
    return [_installed(path) for path in sorted(site.glob("*.dist-info"))]


@cache
def _installed(path: Path) -> Installed:
    """Of a folder of metadata, whose name says the release: what it says does not change."""
    found = Distribution.at(path)
    files = [file for file in found.files or () if file.parts[0] != ".."]
    entries = {file.parts[0] for file in files} - {"__pycache__", "bin"}
    modules = {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so")}
    name = canonicalize_name(found.metadata["Name"])
    return Installed(name, found.version, tuple(found.requires or ()), frozenset(entries), frozenset(modules))


def requirements_of(site: Path) -> dict[str, tuple[str, Sequence[str]]]:
    """Version and requirements by normalised name."""
    return {found.name: (found.version, found.requires) for found in installed_in(site)}


def unmet(installed: Mapping[str, tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Requirements without extras that the installed versions do not meet."""
    for name, (_, requires) in installed.items():
        for text in requires:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            there = installed.get(canonicalize_name(wanted.name))
            if there is None or not wanted.specifier.contains(there[0], prereleases=True):
                yield f"{name}: {text}"


def met(uv: str, environment: Path) -> bool:
    """Whether `uv pip check` has nothing to say."""
    command = [uv, "pip", "check", "-q", "--python", str(environment / "bin" / "python")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
