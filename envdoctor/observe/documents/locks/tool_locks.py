"""What tools write of an environment: uv.lock, by walking from the project through the dependencies; poetry.lock,
pdm.lock and pylock.toml (PEP 751), lists of packages, each with the marker that says when it counts; what conda and
pixi install (environment.yml with its pip section, explicit lists of files, pixi.lock); and bills of materials in JSON,
CycloneDX and SPDX, as syft, trivy and uv write them."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, unquote

from envdoctor.facts.values import ABSENT, Fact, Origin, Unknown, Value
from envdoctor.matrix.matrix import TomlError, parse_toml
from envdoctor.observe.documents.locks.lock import (
    OF_EXTRAS,
    Lock,
    Locked,
    LockEntry,
    LockError,
    Wish,
    bound,
    check_names,
    counts,
    items,
    left_out,
    line_of,
    plain,
    read_packages,
    table,
    unpinned,
    wheel_of,
    with_python,
    words,
)
from envdoctor.observe.documents.locks.requirements import Requirements, of_python, requirements_of_poetry
from envdoctor.system.files import Files
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import NotASpecifier, is_version, satisfies
from envdoctor.versions.requirement import normalise, valid_name

_ONE_PYTHON = r"==\s*(3\.\d{1,2})(?:\.\*|\.\d+)?\Z"
#: Bytes of a pyproject.toml that are read.
_LARGEST = 1 << 20
_OWN = ("virtual", "editable", "directory")
_GROUPS = "dev-dependencies"
_EXTRAS = ("optional-dependencies", _GROUPS)
_Asked = tuple[str, ...]


def read_uv(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages that are reached from the project. Raises :class:`LockError`."""
    document, entries = read_packages(text, "package", path)
    packages = [entry.table for entry in entries]
    if document.get("version") != 1:
        raise LockError("is no uv.lock of version 1, the only one that is known")
    match = re.match(_ONE_PYTHON, str(document.get("requires-python", "")))
    python = match[1] if match else None
    roots = _roots(packages)
    there = {extra for root in roots for extra in _extras_of_uv(packages[root])}
    wish = check_names(wish, there.union(*(_without_packages(packages[root]) for root in roots)))
    default = _default_groups(path, wish, [group for root in roots for group in table(packages[root], _GROUPS)])
    reached = _reached(packages, roots, with_python(wish, python), default)
    locked = [
        _locked_by_uv(entry, wish, sure=reached[number] is True)
        for number, entry in enumerate(entries)
        if number in reached and (number not in roots or "version" in entry.table)
    ]
    others = sorted(there - {*default, *wish.names})
    notes = [Message("{}; --lock '{}[{}]' takes one", left_out(others), path, others[0])] if others else []
    overrides = tuple(str(entry.get("name")) for entry in items(table(document, "manifest").get("overrides")))
    own = str(packages[roots[0]].get("name", "")) if len(roots) == 1 else ""
    for_python = of_python(own, document.get("requires-python"), text, path)
    return Lock(locked, None, python, overrides=overrides, notes=tuple(notes), for_python=for_python)


def _roots(packages: list[dict[str, Any]]) -> list[int]:
    """Return the project; where it is not told which that is, every package of one's own, else all packages."""
    sources = dict(enumerate(package.get("source") for package in packages))
    own = {at: source for at, source in sources.items() if isinstance(source, dict) and set(source) & set(_OWN)}
    return [at for at, source in own.items() if "." in source.values()] or list(own or sources)


def _default_groups(path: str, wish: Wish, there: Sequence[str]) -> Sequence[str]:
    """Return the groups that uv installs unless it is told otherwise: those that the pyproject.toml beside the lock
    says, else dev (https://docs.astral.sh/uv/concepts/projects/dependencies/#default-groups)."""
    text = Files().text_or_empty(os.path.join(wish.cwd, os.path.dirname(path), "pyproject.toml"), _LARGEST)
    try:
        groups = table(parse_toml(text.encode("utf-8", "replace"), ""), "tool", "uv").get("default-groups", ["dev"])
    except TomlError:
        return ("dev",)
    return there if groups == "all" else [*map(normalise, words(groups))]


def _reached(
    packages: list[dict[str, Any]], roots: list[int], wish: Wish, default: Sequence[str]
) -> dict[int, bool | None]:
    """Follow the dependencies from the roots. Return which packages an install takes: True where it is certain, None
    where the target does not say."""
    numbers_of: dict[_Asked, list[int]] = {}
    for number, package in enumerate(packages):
        its = str(package.get("version", "")), str(package.get("source", ""))
        for extra in ("", *_extras_of_uv(package)):
            for which in {("", ""), (its[0], ""), its}:
                numbers_of.setdefault((str(package.get("name")), *which, extra), []).append(number)
    reached: dict[tuple[int, str], bool | None] = {}
    waiting: list[tuple[int, str, bool | None]] = [
        (root, extra, True) for root in roots for extra in ("", *default, *wish.names)
    ]
    followed: set[tuple[_Asked, bool | None]] = set()
    while waiting:
        number, extra, sure = waiting.pop()
        before = reached.get((number, extra), False)
        if before or (before is None and not sure):
            continue
        reached[number, extra] = sure
        package = packages[number]
        groups = [table(package, name).get(extra) for name in _EXTRAS] if extra else [package.get("dependencies")]
        for entry in (entry for group in groups for entry in items(group)):
            there = counts(str(entry.get("marker", "")), wish)
            if there is False:
                continue
            asked = tuple(str(entry.get(part, "")) for part in ("name", "version", "source"))
            certain = (sure and there) if len(numbers_of.get((*asked, ""), ())) == 1 else None
            for key in ((*asked, extra) for extra in ("", *words(entry.get("extra")))):
                # All that are meant, once: a lock may ask for thousands of one name thousands of times.
                if (key, certain) not in followed:
                    followed.add((key, certain))
                    waiting += [(number, key[-1], certain) for number in numbers_of.get(key, ())]
    return {number: sure for (number, extra), sure in reached.items() if not extra}


def _extras_of_uv(package: dict[str, Any]) -> Iterator[str]:
    return (extra for name in _EXTRAS for extra in table(package, name))


def _without_packages(package: dict[str, Any]) -> list[str]:
    """Return all extras and groups of a project: those that are empty stand in its metadata alone."""
    return [*words(table(package, "metadata").get("provides-extras")), *table(package, "metadata", "requires-dev")]


def _locked_by_uv(entry: LockEntry, wish: Wish, *, sure: bool) -> Locked:
    package, wheel = entry.table, wheel_of(str(table(entry.table, "source").get("url", "")))
    requires = tuple(
        line_of(item.get("name"), words(item.get("extra")), "", plain(str(item.get("marker") or ""), wish))
        for item in items(package.get("dependencies"))
    )
    locked = _locked(entry, requires=requires, wheel=wheel[2] if wheel else "")
    return locked if sure else locked._replace(version=Unknown(Message("{} is for some targets only", entry.place)))


def _locked(entry: LockEntry, **columns: Any) -> Locked:
    """Return the package of an entry, with other ``columns``. Raises :class:`LockError` for what is none."""
    spelling, version = str(entry.table.get("name")), entry.table.get("version")
    name = valid_name(spelling)
    if name is None:
        raise LockError("names a package that is none: {}", repr(spelling[:60]))
    known = str(version) if version is not None else Unknown(Message("{} takes it from its source", entry.place))
    return Locked(name, known, entry.place, rebuilt=entry.rebuilt, **columns)


#: Groups that installers take unless they are told otherwise.
_DEFAULT = ("main", "default", "dev")


def read_list(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of the default groups and of those that are chosen. Raises :class:`LockError`."""
    standard = "lock-version" in text[: text.find("[[packages]]")] if "[[packages]]" in text else False
    document, entries = read_packages(text, "packages" if standard else "package", path)
    wish = check_names(wish, _names(document, [entry.table for entry in entries], wish))
    packages: list[Locked] = []
    others: set[str] = set()
    extras = table(document, "extras")
    of_extras = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for name in wish.names for line in words(extras.get(name))}
    for entry in entries:
        package = entry.table
        groups = words(package.get("groups")) or [str(package.get("category", _DEFAULT[0]))]
        optional = package.get("optional") is True and str(package.get("name")) not in of_extras
        chosen = [group for group in groups if group in (*_DEFAULT, *wish.names)]
        if optional or not chosen:
            others.update(extras if optional else groups)
            continue
        packages.append(_listed(entry, chosen))
    notes = (left_out(sorted(others)),) if others else ()
    return Lock(packages, None if packages else Message("no group of it was chosen"), notes=notes)


def _names(document: dict[str, Any], packages: list[dict[str, Any]], wish: Wish) -> Iterator[str]:
    """Yield the extras and groups of a list; those that were chosen too where it is poetry's before 2.0, which does not
    tell its groups."""
    yield from table(document, "extras")
    for listed in ("extras", "dependency-groups", "default-groups"):  # of pylock.toml
        yield from words(document.get(listed))
    yield from words(table(document, "metadata").get("groups"))  # of pdm
    for package in packages:
        yield from (*words(package.get("groups")), *words([package.get("category")]))
        conditions = re.finditer(OF_EXTRAS, str(package.get("marker", package.get("markers", ""))))
        yield from (match[2] or match[3] for match in conditions)
    if "package" in document and not any("groups" in package for package in packages):
        yield from wish.names


def _listed(entry: LockEntry, groups: Iterable[str]) -> Locked:
    package = entry.table
    marker = package.get("marker", package.get("markers", ""))
    if isinstance(marker, dict):  # of poetry, by group; a group without one has the package everywhere
        each = [str(marker.get(group, "")) for group in groups]
        marker = " or ".join(f"({condition})" for condition in each) if all(each) else ""
    wheels = items(package.get("wheels")) or items([package.get("archive")])
    wheel = wheel_of(str(wheels[0].get("name") or wheels[0].get("url", ""))) if len(wheels) == 1 else None
    requires, declared = _requires(package.get("dependencies"))
    python = str(package.get("python-versions", package.get("requires_python", package.get("requires-python", ""))))
    python = python if re.match(r"[\d.,<>=!~*\s]*\Z", python) and python != "*" else ""
    columns = {"marker": str(marker), "requires": requires, "declared": declared, "requires_python": python}
    return _locked(entry, wheel=wheel[2] if wheel else "", **columns)


def _requires(dependencies: object) -> tuple[tuple[str, ...] | None, bool]:
    """Return requirements by PEP 508, and whether they are those of the metadata, as pdm's and poetry's are."""
    match dependencies:
        case dict():
            return tuple(requirements_of_poetry(dependencies)), True
        case list() if dependencies and all(isinstance(line, str) for line in dependencies):
            return tuple(dependencies), True
    return None, False


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
#: Bytes of YAML: libyaml reads a megabyte in a second, PyYAML's own reader a tenth of that.
_LARGEST_YAML, _LARGEST_SLOW = 4 << 20, 512 << 10
_DEEPEST = 20


def read_conda(text: str, path: str, wish: Wish) -> Lock:
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
        is_pinned = self._whole and all(isinstance(entry.version, str) for entry in pip.packages)
        whole = is_pinned and not self.notes and not pip.unread
        # conda installs the section by `pip install -U -r`, also when all of it is pinned.
        commands = tuple(entry._replace(legacy=old_pip, upgrade=True) for entry in pip.commands)
        incomplete, facts = None if whole else Message(_OPEN, self._path), tuple(self._facts.values())
        packages, notes = [*self.packages, *pip.packages], (*self.notes[:5], *pip.notes)
        unread = pip.unread
        return Lock(packages, incomplete, self._python, facts, notes=notes, unread=unread, commands=commands)


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
    if len(text) > (_LARGEST_SLOW if loader is yaml.SafeLoader else _LARGEST_YAML):
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
        place = Origin(path, lines[purl]) if purl in lines else path
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
