"""Lists to be installed: requirements*.txt as pip reads them (pins, ranges, ``-r`` and ``-c``, markers, hashes,
indexes, URLs of wheels), and pyproject.toml with its extras and groups, and what uv is told of them."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.values import Origin, Unknown
from envdoctor.matrix.ledger_taking import AskedRequirement, exact
from envdoctor.matrix.matrix import TomlError, parse_toml
from envdoctor.observe.documents.locks.lock import (
    WHOLE,
    Command,
    EmptyLockError,
    Lock,
    Locked,
    LockError,
    Wish,
    bound,
    build_of,
    check_names,
    counts,
    items,
    left_out,
    line_of,
    read_text,
    table,
    unpinned,
    wheel_of,
    words,
)
from envdoctor.system.files import Budget, Files
from envdoctor.system.message import Message, listed, said_by
from envdoctor.versions.pep440 import NotASpecifier, Order, is_version, order, satisfies
from envdoctor.versions.requirement import NotAMarker, NotARequirement, holds, normalise, read_requirement, valid_name

_MOST_FILES = 50
_MOST_SAID = 5
_OPEN = "{} says what is asked for, and an installer adds what that requires, unless all is listed: --lock '{}[whole]'"
#: ``-r FILE``, ``--requirement=FILE``, ``-rFILE``: the options whose value matters, by their names.
_OPTION = r"(--[a-z-]+|-[a-zA-Z])\s*=?(.*)"
FILES = ("-r", "--requirement", "-c", "--constraint")
INDEXES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
#: Every option that pip takes in a list, and what is a path, a template or a variable instead of a requirement.
_OPTIONS = (
    *("--index-url", "--pypi-url", "--extra-index-url", "--no-index", "--constraint", "--requirement", "--editable"),
    *("--find-links", "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre", "--trusted-host"),
    *("--use-feature", "--global-option", "--install-option", "--hash", "--config-settings", "-i", "-c", "-r", "-e"),
    *("-f", "-C", "--process-dependency-links", "--all-releases", "--only-final", "--requirements-from-script"),
)
_ANOTHER_THING = r"[/\\$`{}]|^[.*]"
_HASH = r"\s--hash[= ]\w+:[0-9a-f]"
_REPOSITORY = r"(?:git|hg|svn|bzr)\+"
#: Where builds of PyTorch lie: its own index, and what mirrors call it (mirrors.nju.edu.cn/pytorch/whl/cu121).
_PYTORCH = r"download\.pytorch\.org|pytorch-wheels|pytorch/whl"
_PYPI = r"pypi\.org|pypi\.python\.org|/pypi/|(?:tuna|aliyun|ustc|douban)"
_TAG = r"/(cpu|cu\d{2,4}|rocm\d+(?:\.\d+)*)(?=/|\Z)"


def read(text: str, path: str, wish: Wish) -> Lock:
    """Return the packages of the list and of those that it names. Raises :class:`LockError`."""
    requirements = Requirements(path, check_names(wish, ()))
    requirements.read(text, path)
    lock = requirements.lock()
    if not lock.packages:
        raise (LockError if lock.notes else EmptyLockError)("names no package")
    return lock


class Requirements:
    """Lines of one list, and of those that it includes. ``read`` and ``line`` add to it, ``lock`` says what it is."""

    def __init__(self, path: str, wish: Wish) -> None:
        top = os.path.realpath(os.path.join(wish.cwd, path))
        cwd = os.path.realpath(wish.cwd)
        self._root = cwd if top.startswith(os.path.join(cwd, "")) else os.path.dirname(top)
        self.path, self._wish = path, wish
        self._asked: list[AskedRequirement] = []
        self._limits: list[AskedRequirement] = []
        self._invalid: list[AskedRequirement] = []
        self._pins: dict[str, tuple[str, str]] = {}
        self._command = Command(())
        self._indexes: list[tuple[str, str]] = []
        #: Where there is no index: the line that says so; and the folders of files.
        self._closed: str | None = None
        self._folders: list[str] = []
        self._seen = {top}
        #: What was not read: there may be more packages.
        self._notes: list[Message] = []
        self._unread: list[Message] = []
        self._builds: dict[tuple[str, str], list[str]] = {}
        #: pip refuses what a list with hashes does not name.
        self._all_hashed = True

    def read(self, text: str, path: str, constraints: bool = False) -> None:
        """Take every line of a text that the user knows as ``path``."""
        for number, line in _logical(text):
            self.line(line, path, Origin(path, number), constraints)

    def line(self, line: str, path: str, place: str, constraints: bool = False) -> None:
        """Take one line, without its comment: an option or a requirement."""
        text, *behind = re.split(r"(?:^|(?<=\s))(?=-)", line, maxsplit=1)
        options = behind[0] if behind else ""
        names = [word.partition("=")[0] if word[:2] == "--" else word[:2] for word in options.split() if word[0] == "-"]
        if not all(any(option.startswith(name) for option in _OPTIONS) for name in names):
            self._refuse(line, place)
        elif not text and (match := re.match(_OPTION, options)):
            value = match[2].strip().strip("\"'")
            if match[1] in ("-e", "--editable") and re.match(_REPOSITORY, value):
                text = value
            else:
                self._option(match[1], value, path, place)
        requirement = self._read(text.strip(), place) if text else None
        if requirement is None:
            return
        bound(len(self._asked))
        version = exact(requirement.specifiers)
        if not constraints:
            self._asked.append(requirement)
            hashed = re.search(_HASH, line) is not None and (version is not None or bool(requirement.url))
            self._all_hashed = self._all_hashed and hashed
            return
        self._limits.append(requirement)
        if version is not None:
            self._pins[requirement.name] = version, place

    def _option(self, name: str, value: str, path: str, place: str) -> None:
        if name in FILES:
            self._include(value, path, place, name in FILES[2:])
        elif name == "--no-index":
            self._closed = place
        elif name in INDEXES:
            self._folders += [value] if name in INDEXES[3:] else []
            before, of_pytorch = self._command, re.search(_PYTORCH, value) is not None
            match, is_only = re.search(_TAG, value), name in INDEXES[:2]
            # A further index may be of other packages: huggingface.github.io/autogptq-index/whl/cu118 has no torch.
            if match and (is_only or of_pytorch):
                self._indexes.append((match[1], place))
            elsewhere = before.elsewhere or not (of_pytorch or re.search(_PYPI, value))
            only = match[1] if match and is_only and of_pytorch else ""
            self._command = before._replace(builds=before.builds or of_pytorch, elsewhere=elsewhere, only=only)
        elif name in ("-e", "--editable"):
            self._notes.append(Message("{}: a package of your own, what it requires is not read", place))

    def _include(self, name: str, path: str, place: str, constraints: bool) -> None:
        there = os.path.realpath(os.path.join(self._wish.cwd, os.path.dirname(path), name))
        if there in self._seen:
            return
        self._seen.add(there)
        reason = ""
        if "://" in name:
            reason = Message("is not fetched")
        elif not there.startswith(os.path.join(self._root, "")):
            reason = Message("lies outside the folder of the list")
        elif os.path.exists(there) and not os.path.isfile(there):  # nobody waits for the writers of 50 pipes
            reason = Message("is not a regular file")
        elif len(self._seen) > _MOST_FILES:
            reason = Message("is one of more than {} files", _MOST_FILES)
        try:
            if not reason:
                shown = os.path.normpath(os.path.join(os.path.dirname(path), name))
                self.read(read_text(there), shown, constraints)
        except LockError as error:
            reason = said_by(error)
        if reason:
            self._unread.append(Message("{}: {} {}", place, name[:100], reason))

    def _read(self, line: str, place: str) -> AskedRequirement | None:
        bare, _, marker = line.partition(" ;") if " ;" in line else line.partition("; ")
        wheel = wheel_of(bare.strip())
        if wheel is not None and (name := valid_name(wheel[0])) is not None:
            return AskedRequirement(name, (), f"=={wheel[1]}", place, marker.strip(), wheel[2])
        if re.match(_REPOSITORY, line) or "://" in bare.partition("@")[0]:
            egg = re.search(r"[#&]egg=([A-Za-z0-9._-]+)", line)
            last = bare.partition("#")[0].rstrip("/").rpartition("/")[2].partition("@")[0].removesuffix(".git")
            name = valid_name(egg[1] if egg else last)
            if name is not None:
                return AskedRequirement(name, (), "", place, marker.strip(), bare)
        try:
            requirement = read_requirement(line)
            satisfies("0", requirement.specifiers)
            if requirement.marker:
                holds(requirement.marker, {**self._wish.markers, "extra": ""})
        except (NotARequirement, NotASpecifier, NotAMarker):
            self._refuse(line, place)
            return None
        url = bare.partition("@")[2].strip()
        return AskedRequirement(
            requirement.name, requirement.extras, requirement.specifiers, place, requirement.marker, url
        )

    def _refuse(self, line: str, place: str) -> None:
        self._notes.append(Message("{} is no requirement that can be read", place))
        if not re.search(_ANOTHER_THING, line):
            name = valid_name(re.split(r"[^\w.-]", line, maxsplit=1)[0])
            self._invalid.append(AskedRequirement(name or line[:20], (), "", place, url=line[:100]))

    def _files(self) -> Mapping[str, str] | None:
        """Return the releases that lie in the folders, by the names of their packages; None if they cannot be seen."""
        releases: dict[str, dict[Order, str]] = {}
        files = Files(budget=Budget(steps=20_000))
        for folder in self._folders:
            there = os.path.join(self._wish.cwd, os.path.dirname(self.path), folder.removeprefix("file://"))
            if "://" in there or not os.path.isdir(there):
                return None
            for file in files.names_or_none(there):
                wheel, source = wheel_of(file), re.fullmatch(r"(.+)-(\d[^-]*)\.(?:tar\.gz|zip)", file)
                name, version = wheel[:2] if wheel else (source[1], source[2]) if source else ("", "")
                place = order(version)
                if (package := valid_name(name)) is not None and place is not None:
                    releases.setdefault(package, {})[place] = version
        ends = ((name, versions[min(versions)], versions[max(versions)]) for name, versions in releases.items())
        return {name: f"=={low}" if low == high else f">={low},<={high}" for name, low, high in ends} or None

    def lock(self) -> Lock:
        """Return what was read, with the constraints on it and the builds of the indexes."""
        packages = [self._locked(requirement) for requirement in self._asked]
        whole = (self._all_hashed or WHOLE in self._wish.names) and not self._notes and not self._unread
        notes = self._notes[:_MOST_SAID]
        if len(self._notes) > _MOST_SAID:
            notes.append(Message("{} more lines of {} were not read", len(self._notes) - _MOST_SAID, self.path))
        for (tag, place), releases in self._builds.items():
            text = "{} names an index of builds {}: {} is taken from there"
            notes.append(Message(text, place, tag, ", ".join(releases)))
        open_ = None if whole else Message(_OPEN, self.path, self.path)
        command = self.command()
        # As `pip freeze` wrote it of a machine whose folders it names: what was installed together there.
        pinned = all(requirement.url or exact(requirement.specifiers) for requirement in self._asked)
        if whole or (pinned and any(requirement.url.startswith("file:") for requirement in self._asked)):
            command = Command((), invalid=command.invalid)
        elif self._closed is not None and command.folder is None:
            text = "{}: nothing but {} is installed from, and what is in it could not be seen"
            notes.append(Message(text, self._closed, listed(self._folders or ["--find-links"], 3)))
            command = Command((), invalid=command.invalid)
        commands = (command,) if command.lines or command.invalid else ()
        return Lock(packages, open_, notes=tuple(notes), unread=tuple(self._unread[:_MOST_SAID]), commands=commands)

    def command(self) -> Command:
        """Return the command that installs what was read."""
        lines, limits, invalid = map(tuple, (self._asked, self._limits, self._invalid))
        folder, tags = self._files() if self._closed is not None else None, tuple(dict(self._indexes))
        return self._command._replace(lines=lines, limits=limits, invalid=invalid, tags=tags, folder=folder)

    def _locked(self, requirement: AskedRequirement) -> Locked:
        name, place = requirement.name, requirement.by
        version: str | Unknown | None = exact(requirement.specifiers)
        if version is None and name in self._pins:
            version, place = self._pins[name]
        wheel = requirement.url if requirement.url.endswith(".whl") else ""
        if version is None and requirement.url:
            version = Unknown(Message("{} takes it from a repository or a folder", place))
        elif version is None:
            version = unpinned(place, "".join(requirement.specifiers.split()))
        elif isinstance(version, str) and not is_version(version):
            version = Unknown(Message("{} gives a version that is none", place))
        elif not wheel:
            # With the local tag of the index that it comes from, where that has such a build.
            tag = build_of(name, str(version), dict(self._indexes), self._wish) if self._indexes else None
            if tag is not None:
                self._builds.setdefault((tag, dict(self._indexes)[tag]), []).append(f"{name} {version}")
                version = f"{version}+{tag}"
        return Locked(name, version, place, requirement.marker, wheel=wheel)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with those that a backslash continues joined; each with the number of its first."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(?<!\S)#.*", "", line).rstrip()
        first = first or number
        if line.endswith("\\"):
            joined += line[:-1]
            if len(joined) > 1 << 18:
                raise LockError("has a line of more than 262,144 characters: {}", first)
            continue
        if joined := (joined + line).strip():
            yield first, joined
        joined, first = "", 0


_ELSEWHERE = ("git", "url", "path", "workspace", "file")
_MOST_GROUPS = 100
#: Groups and extras that were walked, each with the markers under which it was asked for.
_Seen = set[tuple[str, frozenset[str]]]
#: ``mine[train,serve]``: a project whose extras are made of others asks for itself.
_EXTRAS = r"\s*([A-Za-z0-9][\w.-]*)\s*\[([^]]*)\]"
_COMPUTED = (
    "says that what is required is computed in the build (dynamic), which is not read: "
    "`uv pip compile pyproject.toml -o requirements.txt` writes the list that --lock reads"
)


def read_project(text: str, path: str, wish: Wish) -> Lock:
    """Return what an install of the project would bring. Raises :class:`LockError`."""
    try:
        document = parse_toml(text.encode("utf-8", "replace"), "")
    except TomlError as error:
        raise LockError("is {}", error.problem) from None
    project, tool = table(document, "project"), table(document, "tool")
    uv, poetry = table(tool, "uv"), table(tool, "poetry")
    own = normalise(str(project.get("name") or poetry.get("name") or ""))
    extras = {f"{own}[{normalise(name)}]": group for name, group in table(project, "optional-dependencies").items()}
    groups = {normalise(name): group for name, group in table(document, "dependency-groups").items()}
    of_poetry, visited = [*requirements_of_poetry(table(poetry, "dependencies"))], _Seen()
    lines = [*words(project.get("dependencies")), *of_poetry]
    names = (*table(poetry, "extras"), *table(poetry, "group"), "dev")  # of which poetry's own lock tells
    tables = (table(project, "optional-dependencies"), table(document, "dependency-groups"))
    wish = check_names(wish, [*(name for table in tables for name in table), *(names if poetry else ())])
    default = uv.get("default-groups")
    for name in map(normalise, (*wish.names, *(groups if default == "all" else words(default)))):
        lines += _of_group({**groups, **extras}, f"{own}[{name}]" if f"{own}[{name}]" in extras else name, visited)
    sources = {normalise(name): [*_sources(entry, wish)] for name, entry in table(uv, "sources").items()}
    pairs = [(normalise(re.split(r"[^\w.-]", line.strip(), maxsplit=1)[0]), line) for line in lines]
    indexes = {str(source.get("index")) for name, _ in pairs for source in sources.get(name, ())}
    replacing = Requirements(path, wish)
    for line in words(uv.get("override-dependencies")):
        replacing.line(line, path, _place(text, path, line))
    requirements = Requirements(path, wish)
    for index in (*items(uv.get("index")), *items(poetry.get("source"))):
        if index.get("explicit") and str(index.get("name")) not in indexes:  # serves only what names it
            continue
        requirements.line(
            f"--extra-index-url {index.get('url', '')}", path, _place(text, path, str(index.get("url", "")))
        )
    # Files from which setuptools and hatch take the dependencies.
    files = table(tool, "setuptools", "dynamic", "dependencies").get("file")
    files = [files] if isinstance(files, str) else words(files)
    of_hatch = table(tool, "hatch", "metadata", "hooks", "requirements_txt")
    files += [*words(of_hatch.get("files")), *words([of_hatch.get("filename")])]
    for file in files:
        requirements.line(f"-r {file}", path, _place(text, path, file))
    for name, line in pairs:
        if name != own:
            requirements.line(_from_source(line, name, sources), path, _place(text, path, line))
    for line in words(uv.get("constraint-dependencies")):
        requirements.line(line, path, _place(text, path, line), constraints=True)
    lock = requirements.lock()
    computed = "dependencies" in words(project.get("dynamic")) and not files
    if not lock.packages:
        raise LockError(_COMPUTED if computed else "names no package that is installed with the project")
    built = (*words(uv.get("no-build-isolation-package")), *table(uv, "extra-build-dependencies"))
    isolated, overrides = not built and not uv.get("no-build-isolation"), replacing.command().lines
    command = requirements.command()._replace(isolated=isolated, overrides=overrides, of_index=_of_index(uv, sources))
    if of_poetry:  # whose versions mean more than those of pip
        command = command._replace(invalid=())
    walked = {name for name, _ in visited}
    others = [name.removeprefix(f"{own}[").rstrip("]") for name in (*groups, *extras) if name not in walked]
    notes = (*lock.notes, *((left_out(others),) if others else ()))
    notes = (*([Message("{} {}", path, Message(_COMPUTED))] if computed else ()), *notes)
    python = table(poetry, "dependencies").get("python")
    asks = project.get("requires-python") or (",".join(_clauses(python)) if isinstance(python, str) else "")
    return lock._replace(notes=notes, commands=(command,), for_python=of_python(own, asks, text, path))


def of_python(name: str, asks: object, text: str, path: str) -> AskedRequirement | None:
    """Return the range of Pythons that a project asks for, with its line; None where it asks for none."""
    place = _place(text, path, "requires-python" if "requires-python" in text else "python")
    return AskedRequirement(name or "project", (), asks, place) if isinstance(asks, str) and asks else None


def _of_group(
    groups: Mapping[str, Any], name: str, visited: _Seen, under: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield the lines of a group or an extra (``own-name[extra]``), and of those that it includes or asks for,
    ``under`` these markers."""
    if (name, under) in visited or len(visited) > _MOST_GROUPS:
        return
    visited.add((name, under))
    for entry in groups[name] if isinstance(groups.get(name), list) else ():
        match entry:
            case str():
                yield entry
                if match := re.match(_EXTRAS, entry):
                    marker = entry.partition(";")[2].strip()
                    for extra in match[2].split(","):
                        inner = f"{normalise(match[1])}[{normalise(extra.strip())}]"
                        for line in _of_group(groups, inner, visited, under | {*filter(None, [marker])}):
                            yield _where(line, marker)
            case {"include-group": str(included)}:
                yield from _of_group(groups, normalise(included), visited, under)


def _where(line: str, marker: str) -> str:
    """Return the line for where a marker holds as well."""
    bare, _, own = line.partition(";")
    both = " and ".join(f"({condition.strip()})" for condition in (own, marker) if condition.strip())
    return f"{bare} ; {both}" if both else line


#: An index of PyTorch's releases, with its tag; nightly builds are others.
_BUILDS = rf"(?:download\.pytorch\.org/whl|pytorch-wheels|pytorch/whl){_TAG}"
#: What every index of PyTorch's builds has.
_OF_TORCH = ("torch", "torchvision", "torchaudio")


def _sources(sources: Any, wish: Wish) -> Iterator[dict[str, Any]]:
    """Yield the sources of one package that may count: for this target, with the chosen extras and groups."""
    for source in (sources,) if isinstance(sources, dict) else items(sources):
        name, marker = source.get("extra") or source.get("group"), source.get("marker")
        chosen = name is None or name in wish.names
        if chosen and counts(marker if isinstance(marker, str) else "", wish) is not False:
            yield source


def _of_index(uv: Mapping[str, Any], sources: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Return the packages that one index of builds alone serves, with its tag: that of its source, else the first
    index (https://docs.astral.sh/uv/concepts/indexes/#searching-across-multiple-indexes); the default is the last."""
    ordered = sorted(items(uv.get("index")), key=lambda index: index.get("default") is True)
    indexes = [(index, re.search(_BUILDS, str(index.get("url")))) for index in ordered]
    tags = {str(index.get("name")): match[1] for index, match in indexes if match}
    is_alone = uv.get("index-strategy", "first-index") == "first-index"
    first = [match for index, match in indexes if is_alone and not index.get("explicit")][:1]
    single = ((name, tags.get(str(each[0].get("index")))) for name, each in sources.items() if len(each) == 1)
    others = {name: match[1] for match in first if match for name in _OF_TORCH if name not in sources}
    return {**others, **{name: tag for name, tag in single if tag}}


def _from_source(line: str, name: str, sources: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the line as uv reads it: from a repository or a folder where its one source says so."""
    match sources.get(name):
        case [source] if (kind := next((key for key in _ELSEWHERE if source.get(key)), None)) is not None:
            return f"{name} @ {source[kind] if kind == 'url' else f'git+https://host.invalid/{name}'}"
    return line


def requirements_of_poetry(dependencies: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dependencies of poetry as requirements; its Python and what may be left out are not among them."""
    for name, entries in dependencies.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            entry = entry if isinstance(entry, dict) else {"version": entry}
            if name == "python" or entry.get("optional"):
                continue
            if any(entry.get(key) for key in _ELSEWHERE):
                yield f"{name} @ git+https://host.invalid/{name}"
            elif isinstance(entry.get("version", "*"), str):
                clauses = ",".join(_clauses(entry.get("version", "*")))
                yield line_of(name, words(entry.get("extras")), clauses, _marker_of_poetry(entry))


def _marker_of_poetry(entry: Mapping[str, Any]) -> str:
    """Return when a dependency counts: its own marker, and its versions of Python and its platform as one."""
    markers = list[str]()
    for clause in _clauses(str(entry.get("python", "*"))) if "||" not in str(entry.get("python")) else ():
        operator, version = re.match(r"([<>=!~]*)\s*(.*)", clause).groups()  # type: ignore[union-attr]
        variable = "python_full_version" if version.count(".") > 1 else "python_version"
        markers += [f"{variable} {operator} '{version}'"] if operator else []
    markers += [f"sys_platform == '{entry['platform']}'"] if entry.get("platform") else []
    own = str(entry.get("markers") or "")
    return " and ".join([*([f"({own})" if markers else own] if own else []), *markers])


def _clauses(text: str) -> Iterator[str]:
    """PEP 440's specifiers of poetry's: ``^1.2`` is ``>=1.2,<2``, ``~1.2`` is ``>=1.2,<1.3``, ``1.2`` is ``==1.2``."""
    for clause in filter(None, (part.strip() for part in re.split(r",|\s(?=[<>=!^~])", text))):
        match = re.fullmatch(r"([\^~])\s*(\d[\w.]*)", clause)
        if match is None:
            yield "" if clause == "*" else clause if clause[0] in "<>=!~" else f"=={clause}"
            continue
        numbers = [int(part) for part in re.findall(r"\d{1,9}", match[2])][:3]
        place = min(1 if len(numbers) > 1 else 0, len(numbers) - 1)
        if match[1] == "^":
            place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        yield f">={match[2]}"
        yield "<" + ".".join(map(str, [*numbers[:place], numbers[place] + 1]))


def _place(text: str, path: str, sought: str) -> str:
    """Return ``pyproject.toml:12``: the first line that has what is sought."""
    at = text.find(re.split(r"[\s\[<>=!~@;]", sought, maxsplit=1)[0]) if sought not in text else text.find(sought)
    return Origin(path, text.count("\n", 0, at) + 1) if at >= 0 and sought else path
