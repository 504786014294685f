"""What conda and pixi install (environment.yml with its pip section, explicit lists of files, pixi.lock), and bills of
materials in JSON, CycloneDX and SPDX, as syft, trivy and uv write them."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote

from envdoctor.facts.values import ABSENT, Fact, Origin, Value
from envdoctor.observe.documents.locks.lock import (
    Lock,
    Locked,
    LockError,
    Wish,
    bound,
    items,
    place_in,
    table,
    unpinned,
    wheel_of,
)
from envdoctor.observe.documents.locks.requirements import Requirements
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import NotASpecifier, is_version, satisfies
from envdoctor.versions.requirement import valid_name

_OPEN = "{} says what is asked for, and conda adds what that requires"
#: ``conda-forge::pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0``, ``pytorch 2.1.0 py3.10_0``, ``numpy>=1.26``
_SPEC = r"(?:[\w./:-]+::)?([\w.-]+) ?(==?)? ?([^ =\[]*)(?:(?: ?=| ) ?([^ =\[]+))?"
_FILE = r".*/([\w-]+)/([\w.+-]+)-([^-/]+)-([^-/]+?)\.(?:conda|tar\.bz2)\Z"
#: The CUDA of a build: cuda12.1 of the channel pytorch, cuda120 and cuda_126 of conda-forge.
_CUDA = r"(?:\A|_)cuda_?(1\d)\.?(\d)"
_CPU = r"(?:\A|_)cpu(?:_|\Z)"
_PLATFORMS = {
    "linux-64": ("linux", "x86_64"),
    "linux-aarch64": ("linux", "aarch64"),
    "win-64": ("windows", "x86_64"),
    "osx-64": ("darwin", "x86_64"),
    "osx-arm64": ("darwin", "arm64"),
}
#: Bytes: libyaml reads a megabyte in a second, PyYAML's own reader a tenth of that.
_LARGEST, _LARGEST_SLOW = 4 << 20, 512 << 10
_DEEPEST = 20


def read(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of conda and of pip. Raises :class:`LockError`."""
    conda = Conda(path, wish)
    if re.search(r"(?m)^@EXPLICIT\s*$", text):
        lines = enumerate(text.splitlines(), 1)
        conda.files((line.strip(), Origin(path, number)) for number, line in lines if "://" in line)
        return conda.lock()
    pixi = re.search(r"(?m)^packages:", text)  # what is needed of pixi.lock stands before the list of all files
    document = _read_yaml(text[: pixi.start()] if pixi else text)
    match document:
        case {"environments": dict(environments)}:
            return _pixi(environments, conda, wish)
        case {"dependencies": list(dependencies)}:
            conda.specs(dependencies)
            return conda.lock()
        case dict():
            raise LockError("has no list of dependencies")
    raise LockError("holds no environment")


class Conda:
    """Specifications and files of conda as ``packages``, and the requirements of pip beside them."""

    def __init__(self, path: str, wish: Wish) -> None:
        self._path = path
        self._names = {row["conda"]: row["name"] for row in wish.rows("packages", "package") if row.get("conda")}
        self.packages: list[Locked] = []
        self._facts: dict[str, Fact] = {}
        self.pip = Requirements(path, wish)
        self._python: str | None = None
        self._pip_version: str | None = None
        self._whole = True
        self.notes: list[Message] = []

    def specs(self, listed: Iterable[Any]) -> None:
        """Take the entries of ``dependencies``."""
        for entry in listed:
            match entry:
                case _Text():
                    self.spec(entry, Origin(self._path, entry.line))
                case {"pip": list(lines)}:
                    for line in (item for item in lines if isinstance(item, _Text)):
                        self.pip.line(line.strip(), self._path, Origin(self._path, line.line))

    def spec(self, text: str, place: str) -> None:
        """Take one specification, as people write it or as ``conda env export`` does."""
        text = " ".join(text.split())
        match = re.match(_SPEC, text)
        name, operator, version, build = match.groups() if match else ("", "", "", "")
        if not name:
            self.notes.append(Message("{} is no specification that can be read", place))
            return
        plain = re.fullmatch(r"[\w.!+]+", version or "") is not None and "[" not in text and "*" not in version
        exact = plain and (build is not None or operator == "==" or version.count(".") > 1)
        self._whole = self._whole and exact and build is not None
        rest = text[match.end(1) :].strip() if match and version else ""
        self._add(name, version if exact else "", build or "", place, rest)
        if name == "python":
            self._python = version if plain else _only_minor(rest)
        if plain and name == "pip":
            self._pip_version = version

    def files(self, urls: Iterable[tuple[str, str]]) -> None:
        """Addresses of packages and wheels, each with its place."""
        for url, place in urls:
            match, wheel = re.match(_FILE, url.partition("#")[0]), wheel_of(url)
            if match is not None:
                subdir, name, version, build = match.groups()
                self._add(name, version, build, place)
                self._python = version if name == "python" else self._python
                for key, value in zip(("os.platform", "os.arch"), _PLATFORMS.get(subdir, ()), strict=False):
                    self._facts.setdefault(key, Fact(key, value, self._path, "environment"))
            elif wheel is not None and (valid := valid_name(wheel[0])) is not None:
                self.packages.append(Locked(valid, wheel[1], place, wheel=wheel[2]))

    def _add(self, conda: str, version: str, build: str, place: str, text: str = "") -> None:
        name = valid_name(self._names.get(conda, conda))
        if name is None or conda == "python":
            return
        pinned = version if version and is_version(version) else unpinned(place, "" if version else text)
        self.packages.append(Locked(name, pinned, place, conda=True))
        if name == "torch" or conda == "pytorch-cuda":
            cuda = re.search(_CUDA, build) or (
                re.match(r"(1\d)\.(\d)", version or text.lstrip("= ")) if conda != "pytorch" else None
            )
            value: Value = f"{cuda[1]}.{cuda[2]}" if cuda else ABSENT
            if cuda or re.search(_CPU, build):
                self._facts.setdefault("torch.cuda", Fact("torch.cuda", value, place, "environment"))

    def lock(self) -> Lock:
        """Return what was read."""
        pip = self.pip.lock()
        if not self.packages and not pip.packages:
            raise LockError("names no package")
        pip_known = self._pip_version and is_version(self._pip_version)
        old_pip = satisfies(str(self._pip_version), "<25.3") if pip_known else None
        whole = self._whole and not self.notes and all(isinstance(entry.version, str) for entry in pip.packages)
        # conda installs the section by `pip install -U -r`, also when all of it is pinned.
        commands = tuple(entry._replace(legacy=old_pip, upgrade=True) for entry in pip.commands)
        incomplete, facts = None if whole else Message(_OPEN, self._path), tuple(self._facts.values())
        packages, notes = [*self.packages, *pip.packages], (*self.notes[:5], *pip.notes)
        return Lock(packages, incomplete, self._python, facts, notes=notes, commands=commands)


def _only_minor(text: str) -> str | None:
    """Return the one minor release of Python (``3.10``) that ``=3.10.*`` or ``>=3.10,<3.11`` allows, if it is one."""
    with suppress(NotASpecifier):
        exact = re.sub(r"\A=?(?=\d)", "==", text)
        minors = [f"3.{minor}" for minor in range(4, 40) if any(satisfies(f"3.{minor}.{at}", exact) for at in (0, 99))]
        return minors[0] if len(minors) == 1 else None
    return None


def _pixi(environments: dict[str, Any], conda: Conda, wish: Wish) -> Lock:
    name = next((key for key in wish.names if key in environments), "default")
    if name not in environments:
        raise LockError("has no environment {}; there are {}", repr(name), ", ".join(environments)[:200])
    platforms = table(environments, name, "packages")
    system, machine = (str(wish.markers[name] or "") for name in ("platform_system", "platform_machine"))
    target = system.lower(), machine.replace("AMD64", "x86_64")
    fitting = [key for key in platforms if _PLATFORMS.get(key) == target or not system]
    if not fitting:
        text = "has nothing for {} in the environment {}: {}"
        raise LockError(text, " ".join(target), repr(name), ", ".join(platforms)[:200])
    urls = [url for entry in items(platforms[fitting[0]]) for url in entry.values() if isinstance(url, _Text)]
    conda.files((url, Origin(conda.pip.path, url.line)) for url in urls)
    lock = conda.lock()
    others = ", ".join(key for key in environments if key != name)[:200]
    beside = [Message("the environment {} is judged, beside it are {}", name, others)] if others else []
    return lock._replace(notes=(*lock.notes, *beside))


class _Text(str):
    """A scalar as it is written, and its line (from 1)."""

    line = 0


def _read_yaml(text: str) -> Any:
    """Return the first document: ``dict``, ``list`` and :class:`_Text`. Raises :class:`LockError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if len(text) > (_LARGEST_SLOW if loader is yaml.SafeLoader else _LARGEST):
        raise LockError("is too large to be read as YAML")
    top: list[Any] = []
    open_: list[list[Any]] = [top]
    try:
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            match event:
                case yaml.AliasEvent():
                    raise LockError("uses an alias of YAML in line {}, and no lock does", line)
                case yaml.ScalarEvent():
                    scalar = _Text(event.value)
                    scalar.line = line
                    open_[-1].append(scalar)
                case yaml.CollectionStartEvent():
                    open_.append([])
                    if len(open_) > _DEEPEST:
                        raise LockError("is nested more than {} levels deep", _DEEPEST)
                case yaml.SequenceEndEvent():
                    values = open_.pop()
                    open_[-1].append(values)
                case yaml.MappingEndEvent():
                    values = open_.pop()
                    pairs = zip(values[::2], values[1::2], strict=True)
                    open_[-1].append({key: value for key, value in pairs if isinstance(key, str)})
                case yaml.DocumentEndEvent():
                    break
    except yaml.YAMLError as error:
        raise LockError("is not YAML: {}", " ".join(str(error).split())[:200]) from None
    return top[0] if top else None


_PURL = r"pkg:(pypi|conda)/([^@?#\s]+)(?:@([^?#\s]+))?(?:\?([^#\s]*))?"
_WRITTEN = r"pkg:(?:pypi|conda)/[^\"\\]{1,2000}"
#: As uv says when a package counts.
_MARKER = "uv:package:marker"


def read_sbom(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of Python and of conda that the document lists. Raises :class:`LockError`."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise LockError("is not JSON: {}", error) from None
    if not isinstance(document, dict) or not {"bomFormat", "spdxVersion"} & set(document):
        raise LockError("is no bill of materials by CycloneDX or SPDX")
    lines = _lines(text)
    conda, packages = Conda(path, wish), []
    for purl, marker in _purls(document):
        match = re.match(_PURL, purl)
        place = place_in(path, lines.get(purl))
        if match is None:
            continue
        kind, name, version, more = match[1], unquote(match[2]), unquote(match[3] or ""), parse_qs(match[4] or "")
        if kind == "conda":
            build, subdir = (more.get(key, [""])[0] for key in ("build", "subdir"))
            conda.files([(f"/{subdir or 'noarch'}/{name}-{version}-{build or '0'}.conda", place)])
        elif (valid := valid_name(name)) is not None:
            packages.append(Locked(valid, version if is_version(version) else unpinned(place, ""), place, marker))
    if not packages:
        return conda.lock()
    lock = conda.lock() if conda.packages else Lock([])
    return lock._replace(packages=[*packages, *lock.packages])


def _purls(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each package's purl, with its marker."""
    for package in items(document.get("packages")):
        for reference in items(package.get("externalRefs")):
            if reference.get("referenceType") == "purl":
                yield str(reference.get("referenceLocator")), ""
    level = items(document.get("components"))
    for _ in range(_DEEPEST):
        inner: list[dict[str, Any]] = []
        for component in level:
            properties = {entry.get("name"): entry.get("value") for entry in items(component.get("properties"))}
            yield str(component.get("purl")), str(properties.get(_MARKER) or "")
            inner += items(component.get("components"))
        if not inner:
            return
        bound(len(inner))
        level = inner
    raise LockError("is nested more than {} levels deep", _DEEPEST)


def _lines(text: str) -> dict[str, int]:
    """Return the line of the first place that has each purl; nothing where the document is one line."""
    lines: dict[str, int] = {}
    line, counted = 1, 0
    for match in re.finditer(_WRITTEN, text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        lines.setdefault(match[0], line)
    return lines if line > 1 else {}
