"""YAML and JSON, comments and trailing commas allowed, as settings with their lines."""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from envdoctor.facts.values import Origin
from envdoctor.observe.errors import ObservationError
from envdoctor.system.message import Message

#: What is named by its path from the project's root is looked for in so many folders above the one that names it.
_ABOVE = 4
#: How many bytes of a file are read.
LARGEST = 8 << 20
#: How names of documents end.
DOCUMENTS = (".yaml", ".yml", ".json", ".jsonc", ".json5")
Scalar = str | int | float | bool | None
#: The key of a setting that stands for others that nobody can tell, as in ``f(**options)``.
REST = "**"
#: Settings of one file. The largest recipes of the frameworks' own examples have about 150.
MOST_ENTRIES = 2000


class RecipeError(ObservationError):
    """A file is no recipe that can be read; the message is what follows the file's name in a sentence."""


class RecipeEntry(NamedTuple):
    """One setting. ``key`` is dotted (``training_args.max_steps``), and has no dashes if it is an option; ``#n`` is the
    n-th argument of a command that belongs to no option. ``place`` is the line and, in a notebook, the cell.
    ``text_number``: YAML 1.1, and so PyYAML, reads the number as text (5e-4). ``computed``: a variable or an expression
    stands for the value. ``perhaps``: the key is given under a condition. ``own``: the script that the command starts
    declares the option itself. ``undecided``: a branch sets the value, and the file does not decide its test. ``file``
    is the script's own module in which it stands, empty for the file itself."""

    key: str
    value: Scalar | tuple[Scalar, ...]
    place: tuple[int, ...]
    text_number: bool = False
    computed: bool = False
    perhaps: bool = False
    own: bool = False
    undecided: bool = False
    file: str = ""

    def origin(self, file: str) -> Origin:
        """Return its place, in this ``file`` unless it stands in another one."""
        return Origin(self.file or file, *self.place)


class Part(NamedTuple):
    """The settings of one program. ``program`` is that of a command (``trl sft``), the name of a call
    (``AutoModelForCausalLM.from_pretrained``), ``#SBATCH`` or ``environment``; empty for a document. A command has the
    ``line`` of its program, the ``words`` behind it (None for a computed one), the ``folder`` that the script has gone
    to (``cd``), and its first and last line (``lines``); ``module``: the program is named as one (``-m``); ``behind``:
    the command stands behind an exit of its script. ``perhaps``: the call is made under a condition. ``own``: the
    script is called like one of a framework, and imports nothing of it."""

    program: str
    entries: tuple[RecipeEntry, ...]
    line: int = 0
    words: tuple[str | None, ...] = ()
    module: bool = False
    perhaps: bool = False
    folder: str = ""
    lines: tuple[int, int] = (0, 0)
    own: bool = False
    behind: bool = False

    @property
    def starts_script(self) -> bool:
        """Return whether a command starts a script, or a module by its name."""
        return self.line > 0 and (self.program.endswith(".py") or self.module)

    def owning(self, is_own: Callable[[str], bool]) -> "Part":
        """Return the part with the keys as the script's own that are."""
        return self._replace(entries=tuple(entry._replace(own=is_own(entry.key)) for entry in self.entries))

    def stands_in(self, line: int) -> bool:
        """Return whether a command, or its program, stands in a line."""
        return line == self.line or self.lines[0] <= line <= self.lines[1]


#: PyYAML reads 100 kB a second; the largest recipes have 20 kB.
_LARGEST = 256 << 10
_DEEPEST = 40
_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "none": None, "true": True, "false": False}
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?\Z")
#: Keys of which a container has one.
_HAS_CONTAINERS = r"\b(?:image|build)[\"']?[ \t]*:"
#: A string, which stays; a comment; a tab.
_JSON_PARTS = re.compile(r'("(?:[^"\\\n]|\\.)*"?)|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?|\t', re.DOTALL)


def folders_above(folder: str) -> list[str]:
    """Return the folder itself, and those above it."""
    folders = [folder]
    for _ in range(_ABOVE):
        folders.append(os.path.dirname(folders[-1]))
    return list(dict.fromkeys(folders))


def scalar(text: str) -> Scalar:
    """Return a word as YAML 1.2 and command lines of training scripts mean it: null, true, 2, 5e-4, or text."""
    if (lowered := text.lower()) in _WORDS:
        return _WORDS[lowered]
    if len(text) > 40 or not _NUMBER.match(text):
        return text
    plain = text.replace("_", "")
    return int(plain) if plain.lstrip("+-").isdecimal() else float(plain)


def read_document(text: str, line: int = 0, prefix: str = "") -> tuple[RecipeEntry, ...]:
    """Return the settings of a document, or of one inside a command at ``line``. Raises :class:`RecipeError`."""
    import yaml

    if len(text) > _LARGEST:
        raise RecipeError("is larger than {} kB, and no recipe is", _LARGEST >> 10)
    if is_json := text.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*")):
        text = _JSON_PARTS.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), text)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        if is_json:  # the parser speaks of YAML
            text = "is not JSON: {}a comma, a quote or a bracket before it is missing, or one is there too many"
            raise RecipeError(text, place) from None
        raise RecipeError("is not YAML: {}{}", place, error.problem) from None
    except yaml.YAMLError as error:
        raise RecipeError("is not YAML: {}", str(error).splitlines()[0]) from None
    except (RecursionError, MemoryError):
        raise RecipeError("is nested too deeply to be read") from None
    if not isinstance(root, yaml.MappingNode):
        raise RecipeError(Message("holds no settings (key: value)") if root is not None else Message("is empty"))
    return tuple(_entries(root, line, prefix, is_json))


class _Container(NamedTuple):
    """A container of a file for Docker Compose or Kubernetes: its ``image``, or the ``build`` of one, and the words of
    its command as YAML has them, with their lines; ``command`` is None without one."""

    image: str
    build: str
    line: int
    command: list[Any]
    place: int


def containers(text: str) -> list[_Container]:
    """Return the containers in a file for Docker Compose or Kubernetes; none in another file."""
    import yaml

    if len(text) > _LARGEST or not re.search(_HAS_CONTAINERS, text):
        return []
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except (yaml.YAMLError, RecursionError, MemoryError):
        return []
    entries = []
    for node in islice(_below(nodes), MOST_ENTRIES):
        table = dict(_pairs(node)) if node.id == "mapping" else {}
        commands = [table[name] for name in ("entrypoint", "command", "args") if name in table]
        image, build = table.get("image"), table.get("build")
        sources = [part for part in (image, build) if part is not None]
        if sources and (image is None or image.id == "scalar"):
            place = commands[-1].start_mark.line if commands else -1
            name = str(image.value) if image is not None else ""
            entries.append(_Container(name, _dockerfile(build), sources[0].start_mark.line, commands, place))
    return entries


def _dockerfile(build: Any) -> str:
    """Return the path of the Dockerfile that a service is built with; an empty text without one."""
    if build is None or build.id == "sequence":
        return ""
    keys = {key: str(node.value) for key, node in _pairs(build)} if build.id == "mapping" else {"context": build.value}
    return os.path.join(keys.get("context", "."), keys.get("dockerfile", "Dockerfile"))


def container_commands(text: str) -> str:
    """Return the commands of the containers in a file for Docker Compose or Kubernetes, as a script of the shell whose
    lines are those of the file; an empty text where there are none."""
    lines: dict[int, str] = {}
    for container in containers(text):
        if container.command:
            words = " ".join(["docker run", shlex.quote(container.image or "image"), *map(_words, container.command)])
            lines[container.place] = words.replace("\n", " ")
    return "\n".join(lines.get(line, "") for line in range(max(lines, default=-1) + 1))


def _below(nodes: list[Any]) -> Iterator[Any]:
    """Yield nodes and those below them; one that aliases stand for comes once."""
    visited: set[int] = set()
    for node in nodes:  # it grows
        if id(node) in visited:
            continue
        visited.add(id(node))
        yield node
        if node.id == "mapping":
            nodes += [value for _, value in node.value]
        elif node.id == "sequence":
            nodes += node.value


def _words(node: Any) -> str:
    """Return the words of a command as a shell writes them; ``sh`` for ``/bin/sh``."""
    if node.id == "scalar":
        return str(node.value)
    words = [str(item.value) for item in node.value if item.id == "scalar"] if node.id == "sequence" else []
    return " ".join(shlex.quote(re.sub(r"/(?:usr/)?bin/(?=(?:ba)?sh\Z)", "", word)) for word in words)


def makefile_as_shell(text: str) -> str:
    """Return the rules of a makefile as commands of the shell, line by line, with its variables."""
    lines = re.sub(r"\$\((\w+)\)", r"${\1}", text.replace("$$", "$")).split("\n")
    for at, line in enumerate(lines):
        name, equals, value = line.partition("=")
        if equals and (variable := name.rstrip(" \t?:")).isidentifier():
            lines[at] = f"{variable}={shlex.quote(value.strip())}"
        elif line.startswith("\t"):
            lines[at] = line[1:].lstrip("@-")
    return "\n".join(lines)


def _entries(root: Any, first: int, prefix: str, is_json: bool) -> list[RecipeEntry]:
    """Level by level, so that neither depth nor aliases cost more than the settings that are kept."""
    entries: list[RecipeEntry] = []
    level: list[tuple[str, Any]] = [(prefix, root)]
    steps = 0
    for _ in range(_DEEPEST):
        inner: list[tuple[str, Any]] = []
        for name, node in level:
            for key, value in _pairs(node):
                steps += 1
                if steps > MOST_ENTRIES:
                    raise RecipeError(
                        "has more than {} settings; aliases count for all that they stand for", MOST_ENTRIES
                    )
                dotted = f"{name}.{key}" if name else key
                if value.id == "mapping" and value.value:
                    inner.append((dotted, value))
                else:
                    entries.append(_entry(dotted, value, first, is_json))
        if not inner:
            return sorted(entries, key=lambda entry: entry.place)
        level = inner
    raise RecipeError("is nested more than {} levels deep", _DEEPEST)


def _pairs(node: Any) -> list[tuple[str, Any]]:
    """Keys and values; ``<<: *other`` gives the keys that are not given here."""
    merged: list[tuple[str, Any]] = []
    own: list[tuple[str, Any]] = []
    for key, value in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            several = value.value if value.id == "sequence" else [value]
            # Of a merged mapping its own merges are left out: nobody writes them, and they may go round in circles.
            pairs = [pair for node in several[:20] if node.id == "mapping" for pair in node.value[:MOST_ENTRIES]]
            merged += [(str(key.value)[:200], value) for key, value in pairs if key.id == "scalar"]
        elif key.id == "scalar":
            own.append((str(key.value)[:200], value))
    return list({**dict(merged), **dict(own)}.items())


def _entry(key: str, node: Any, first: int, is_json: bool) -> RecipeEntry:
    place = (max(1, first + node.start_mark.line + (0 if first else 1)),)
    if node.id == "sequence":
        return RecipeEntry(key, tuple(_value(item) for item in node.value[:200] if item.id == "scalar"), place)
    if node.id == "mapping":
        return RecipeEntry(key, None, place)
    value = _value(node)
    text_number = isinstance(value, float) and node.tag.endswith(":str") and not is_json
    return RecipeEntry(key, value, place, text_number)


def _value(node: Any) -> Scalar:
    """Return a plain word by what it looks like; yes, no, on and off are YAML 1.1's true and false."""
    if node.style is not None:
        return str(node.value)[:4096]
    if node.tag == "tag:yaml.org,2002:bool":
        return node.value.lower() in ("true", "yes", "on")
    return scalar(str(node.value)[:4096])
