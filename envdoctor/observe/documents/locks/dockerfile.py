"""Dockerfile: the base image by its tag (table images), and what RUN installs with pip, uv and conda, in order.
The image of a container for Docker Compose or Kubernetes is a base image, and its command a RUN."""

import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from envdoctor.facts.values import Fact, Origin, Unknown
from envdoctor.observe.documents.locks.lock import Command, Lock, Locked, LockError, Wish, read_text
from envdoctor.observe.documents.locks.requirements import FILES, INDEXES, Requirements
from envdoctor.observe.documents.locks.tool_locks import Conda
from envdoctor.system.message import Message, listed
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.requirement import valid_name

_OPEN = "{} says what is installed, and the image and the installers add more"
_MOST_LINES, _LONGEST, _LONGEST_INSTRUCTION = 20_000, 1 << 20, 1 << 18
_VARIABLE = r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))"
#: Behind these an install command of pip, uv or conda follows in the same line.
_COMMAND = r"\b(?:(?:uv\s+)?pip3?(?:\.\d+)?|conda|mamba|micromamba)\s+(?:install|uninstall|add)\b"
_SYSTEM = r"\b(?:apt-get|apt|dnf|yum)\b[^;&|\n]*"
_ENDS = r"&&|\|\||[;|]|\n"
_WITH_VALUE = (*FILES, *INDEXES, "-e", "--editable")
#: Options whose value is no package, and says nothing of one.
_SKIPPED = (
    *("--target", "-t", "--prefix", "--root", "--python", "-p", "-n", "--name", "--channel", "--timeout", "--retries"),
    *("--trusted-host", "--default-timeout", "--cache-dir", "--no-binary", "--only-binary", "--platform", "--file"),
    *("--torch-backend", "--index-strategy", "--proxy", "--config-settings", "--progress-bar"),
)
#: Folders, and what the shell takes for itself.
_NO_PACKAGE = r"[./](?!.*\.whl\Z)|\d*[<>&]|[()&]|[^\s(]*\)\Z"
#: A folder of the build that is installed.
_FOLDER = r"\.(?!.*\.whl\Z)"


class _Line(NamedTuple):
    """An instruction with what it continues to, and the numbers of its lines in the file."""

    word: str
    text: str
    first: int


#: The stage that a stage begins with, and its instructions.
_Lines = tuple["_Lines | None", list[_Line]]


def read(text: str, path: str, wish: Wish) -> Lock:
    """Return what the last stage has installed, with the stages that it comes from. Raises :class:`LockError`."""
    by_name: dict[str, _Lines] = {}
    arguments: dict[str, str] = {}
    last: _Lines | None = None
    for line in _instructions(text):
        if line.word == "FROM":
            words = [word for word in _filled(line.text, arguments).split() if not word.startswith("--")]
            if not words:
                raise LockError("has a FROM without an image in line {}", line.first)
            last = by_name.get(words[0].lower()), [line._replace(text=words[0])]
            if len(words) > 2 and words[1].lower() == "as":
                by_name[words[2].lower()] = last
        elif last is not None:
            last[1].append(line)
        elif line.word in ("ARG", "ENV"):
            arguments.update(_assigned(line.text, {}))
    if last is None:
        raise LockError("has no FROM")
    stages = [last]
    while (base := stages[-1][0]) is not None:
        stages.append(base)
    stage = _Stage(path, wish, arguments)
    for line in (line for _, lines in reversed(stages) for line in lines):
        if line.word == "FROM" and line is stages[-1][1][0]:
            stage.image(line.text, Origin(path, line.first))
        elif line.word in ("ARG", "ENV"):
            stage.variables.update(_assigned(line.text, stage.variables))
        elif line.word == "RUN":
            stage.run(line)
        elif line.word in ("COPY", "ADD"):
            stage.copied(line.text)
    return stage.lock()


def read_containers(text: str, path: str, wish: Wish) -> Lock:
    """Return what the image of a file's containers has, with what their command installs, or what its build makes; of
    several the one that the table images knows, else of the one with a command. Raises :class:`LockError`."""
    from envdoctor.observe.recipe.document import containers

    by_image = {(box.image, box.build) if box.build else box.image: box for box in containers(text)}
    images = {str(row["image"]) for row in wish.rows("images") if any(key[:4] == "pkg." for key in row["facts"])}
    ranks = [
        [box for box in by_image.values() if box.build or _name_and_tag(_filled(box.image, {}))[0] in images],
        [box for box in by_image.values() if box.command],
        list(by_image.values()),
    ]
    chosen = next((rank for rank in ranks if rank), [])
    if not chosen:
        raise LockError("names no container with an image")
    first, place = chosen[0], Origin(path, chosen[0].line + 1)
    names = listed([box.build or box.image[:100] for box in chosen], 3)
    text = "{}: what the image {} has installed is not known; --lock FILE gives the list that it is made from"
    unknown = Message(text, place, names)
    try:
        if len(chosen) > 1:
            raise LockError("names several images")
        if first.build:
            file = os.path.normpath(os.path.join(os.path.dirname(path), first.build))
            return read(read_text(os.path.join(wish.cwd, file), file), file, wish)
        words = (word for node in first.command for word in ([node] if node.id == "scalar" else node.value))
        script = " ".join(str(word.value) for word in words if word.id == "scalar").replace("\\\n", " ")
        run = "RUN " + script.replace("\n", " ; ")
        lines = {first.line: f"FROM {first.image}", max(first.place, first.line + 1): run}
        return read("\n".join(lines.get(at, "") for at in range(max(lines) + 1)), path, wish)
    except LockError:
        return Lock([], Message("what the image {} has installed is not known", names), notes=(unknown,))


def read_notebook(text: str, path: str, wish: Wish) -> Lock:
    """Return what the lines of a notebook install that are commands (``!pip install``). Raises :class:`LockError`."""
    from envdoctor.source.notebook import NotANotebook, cells

    stage, at = _Stage(path, wish, {}), 0
    stage.unknown_image(Message("{}: what is installed where the notebook runs is not known", path))
    try:
        for _, source in cells(text.encode("utf-8", "surrogatepass")):
            shell = re.match(r"\s*%%(?:bash|sh)\b", source) is not None
            for line in re.sub(r"\\[ \t]*\n", " ", source).splitlines():
                if (shell or line.lstrip()[:1] in ("!", "%")) and re.search(_COMMAND, line):
                    at = max(at, text.find(json.dumps(line.split("  ")[0], ensure_ascii=False)[1:-1], at))
                    stage.run(_Line("RUN", line.lstrip().lstrip("!%"), text.count("\n", 0, at) + 1))
    except NotANotebook as error:
        raise LockError("is no notebook: {}", error) from None
    if not at:
        raise LockError("is a notebook that installs nothing: --code judges what it uses")
    return stage.lock()


class _Stage:
    """What is known of the last stage; a later command stands above an earlier one."""

    def __init__(self, path: str, wish: Wish, variables: dict[str, str]) -> None:
        self._path, self._wish, self.variables = path, wish, variables
        self._packages: dict[str, Locked] = {}
        self._facts: dict[str, Fact] = {}
        self._notes: list[Message] = []
        self._unread: list[Message] = []
        self._python: str | None = None
        self._commands: list[Command] = []
        #: What the image has, with the releases that its tag tells; None: nobody knows.
        self._before: tuple[tuple[str, str], ...] | None = ()
        self._is_pip_new = False
        #: Files of the build by their names in the image.
        self._copied: dict[str, str] = {}

    def image(self, image: str, place: str) -> None:
        """Take the base image, by the table images."""
        name, tag = _name_and_tag(image)
        for row in self._wish.rows("images"):
            if row["image"] == name and (match := re.fullmatch(tag_pattern(row["tag"]), tag)):
                contents = dict.fromkeys(row.get("others", ()), "")
                for key, form in row["facts"].items():
                    value = str(form).format(**match.groupdict())
                    if key.startswith("pkg."):
                        contents[key[4:]] = value
                        self._packages[key[4:]] = Locked(key[4:], value, place)
                    elif key == "python.version":
                        self._python = value if value.count(".") else None
                    else:
                        self._facts[key] = Fact(key, value, place, "environment")
                self._before = tuple(contents.items()) if "others" in row else None
                if "installs" in row:
                    requirements = Requirements(self._path, self._wish)
                    for line in row["installs"]:
                        requirements.line(line.format(**match.groupdict()), self._path, place)
                    self._commands.append(requirements.command()._replace(before=self._before, image=True))
                return
        self.unknown_image(Message("{}: what the image {} has installed is not known", place, image[:100]))

    def unknown_image(self, note: Message) -> None:
        """Take an image that may have anything."""
        self._before = None
        self._notes.append(note)

    def copied(self, text: str) -> None:
        """Remember which file of the build a file of the image is."""
        words = _filled(text.replace("\x00", " "), self.variables).split()
        *sources, target = [word for word in words if not word.startswith("--")] or [""]
        if not any(word.startswith("--from") for word in words):
            for source in sources:
                is_folder = target.endswith(("/", ".")) or len(sources) > 1 or "." not in posixpath.basename(target)
                self._copied[posixpath.basename(source if is_folder else target)] = source

    def _file(self, path: str) -> str:
        """Return the file of the build that a command means: as it is named, as it was copied, or beside the
        Dockerfile; what was copied may lie in a folder above (``docker build -f docker/cuda/Dockerfile .``)."""
        name = posixpath.basename(path)
        source = self._copied.get(name, name)
        folder = os.path.join(self._wish.cwd, os.path.dirname(self._path))
        ups = ("", "../", "../../", "../../../")
        top = next((at for at, up in enumerate(ups) if os.path.exists(os.path.join(folder, up, ".git"))), len(ups))
        choices = [
            *([] if path.startswith("/") or name in self._copied else [path]),
            source,
            posixpath.basename(source),
            *(f"{up}{source}" for up in ups[1 : top + 1] if {name, "."} & self._copied.keys()),
        ]
        return next((choice for choice in choices if os.path.isfile(os.path.join(folder, choice))), choices[0])

    def run(self, line: _Line) -> None:
        """Take the commands of one RUN."""
        script = _filled(line.text, self.variables)
        pythons = {version for apt in re.findall(_SYSTEM, script) for version in re.findall(r"\bpython(3\.\d+)\b", apt)}
        if self._python is None and len(pythons) == 1:
            self._python = pythons.pop()
        for command in re.finditer(_COMMAND, script):
            end = re.compile(_ENDS).search(script, command.end())
            words = script[command.end() : end.start() if end else len(script)]
            try:
                arguments = shlex.split(words.replace("\x00", " "), comments=True)
            except ValueError:
                continue
            number = line.first + script.count("\x00", 0, command.start())
            places = {word: number + words[: max(0, words.find(word))].count("\x00") for word in arguments}
            self._command(command[0], arguments, {word: Origin(self._path, at) for word, at in places.items()})

    def _command(self, command: str, words: list[str], places: Mapping[str, str]) -> None:
        if "uninstall" in command:
            removed = {valid_name(word) for word in words}
            self._packages = {name: package for name, package in self._packages.items() if name not in removed}
            self._before = self._before and tuple(package for package in self._before if package[0] not in removed)
            return
        conda = re.search(r"\b(conda|mamba|micromamba)\b", command) is not None
        specs = Conda(self._path, self._wish) if conda else None
        pip = Requirements(self._path, self._wish) if specs is None else specs.pip
        waiting = iter(words)
        for word in waiting:
            if word in _SKIPPED or (conda and word == "-c") or re.fullmatch(r"\d*[<>]+", word):
                next(waiting, None)
            elif word in _WITH_VALUE:
                value = next(waiting, "")
                pip.line(f"{word} {self._file(value) if word in FILES else value}", self._path, places[word])
            elif word.startswith("-") or re.match(_NO_PACKAGE, word):
                if word.partition("=")[0] in _WITH_VALUE or re.match(_FOLDER, word):
                    pip.line(f"-e {word}" if word[0] == "." else word, self._path, places[word])
            elif specs is not None:
                specs.spec(word, places[word])
            else:
                pip.line(word, self._path, places[word])
        lock = specs.lock() if specs is not None else pip.lock()
        self._notes += lock.notes
        self._unread += lock.unread
        self._facts.update({fact.key: fact for fact in lock.facts})
        self._python = lock.python or self._python
        newest = bool({"-U", "--upgrade", "--force-reinstall", "--upgrade-strategy"} & set(words))
        if specs is None:
            isolated = "--no-build-isolation" not in words
            # Until 25.3 pip built what has only a setup.py without isolation where setuptools was there, which images
            # of Python 3.12 and newer leave out; uv never did.
            is_bare = bool(self._python and is_version(self._python) and satisfies(self._python, ">=3.12"))
            legacy = "uv" not in command and not is_bare and (not self._is_pip_new or None)
            self._is_pip_new = self._is_pip_new or (newest and "pip" in words)
            deps = "--no-deps" not in words
            install = pip.command()._replace(deps=deps, upgrade=newest, isolated=isolated)
            self._commands.append(install._replace(legacy=legacy, before=self._before))
        for package in lock.packages:
            there = self._packages.get(package.name)
            if isinstance(package.version, Unknown) and there is not None and not newest:
                continue  # what is there is kept where it is new enough
            self._packages[package.name] = package

    def lock(self) -> Lock:
        """Return what was installed."""
        if not self._packages and not self._facts:
            raise LockError("installs no package with pip, uv or conda on an image that is known")
        python = self._python if self._python and is_version(self._python) else None
        packages, facts = [*self._packages.values()], tuple(self._facts.values())
        notes, unread = (tuple(dict.fromkeys(part)) for part in (self._notes, self._unread))
        open_, commands = Message(_OPEN, self._path), tuple(self._commands)
        return Lock(packages, open_, python, facts, notes=notes, unread=unread, commands=commands)


def _instructions(text: str) -> Iterator[_Line]:
    """Instructions with their continuations; NUL stands where a line of the file ends, a here-document's too."""
    if len(text) > _LONGEST:
        raise LockError("has more than {} characters", f"{_LONGEST:,}")
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        raise LockError("has more than {} lines", f"{_MOST_LINES:,}")
    number = 0
    while number < len(lines):
        first, parts = number + 1, [lines[number]]
        number += 1
        if not parts[0].strip() or parts[0].lstrip().startswith("#"):
            continue
        here = re.search(r"<<-?[\"']?(\w+)", parts[0])
        while here and number < len(lines) and lines[number].strip() != here[1]:
            parts.append(lines[number].removesuffix("\\") if lines[number].endswith("\\") else lines[number] + "\n")
            number += 1
        while not here and parts[-1].rstrip().endswith("\\") and number < len(lines):
            comment = lines[number].lstrip().startswith("#")
            parts[-1] = parts[-1].rstrip()[:-1]
            parts.append(" \\" if comment else lines[number])
            number += 1
        if sum(map(len, parts)) > _LONGEST_INSTRUCTION:
            raise LockError("has an instruction of more than {} characters", f"{_LONGEST_INSTRUCTION:,}")
        word, _, rest = "\x00".join(parts).lstrip().partition(" ")
        yield _Line(word.upper(), rest, first)


def _name_and_tag(image: str) -> tuple[str, str]:
    """Return the name of an image without its registry's default part, and its tag."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    name, tag = (name, tag) if name and "/" not in tag else (image, "latest")
    return name.removeprefix("docker.io/").removeprefix("library/"), tag


def tag_pattern(tag: str) -> str:
    """Return the pattern of a tag in the table images: ``*`` is anything, ``{name}`` a release (``0.6.3.post1``)."""
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d[\\d.]*(?:post\\d+)?)", re.escape(tag)).replace(r"\*", ".*")


def _filled(text: str, variables: dict[str, str]) -> str:
    """Return the text with its variables; one that is not known stays as it is written."""

    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[3], match[2] if match[2] is not None else match[0])

    return re.sub(_VARIABLE, value, text)


def _assigned(text: str, variables: dict[str, str]) -> dict[str, str]:
    """Return ``NAME=value …`` or ``NAME value`` of ARG and ENV."""
    plain = _filled(text.replace("\x00", " "), variables)
    try:
        words = shlex.split(plain)
    except ValueError:
        return {}
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])} if len(words) > 1 else {}
    return {name: value[:1000] for name, _, value in (word.partition("=") for word in words[:200])}
