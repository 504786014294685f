"""``--lock FILE``: the format by the file's name or content, and its packages as the facts of an environment; what an
open list certainly does not bring, of the packages that a run or code may need beside it."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import islice
from typing import Any

from envdoctor.facts.factset import FactSet, marker_values
from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.matrix.entry_statements import parse_statement
from envdoctor.matrix.ledger import Ledger
from envdoctor.matrix.ledger_taking import AskedRequirement, TakingRefusal, allows, exact
from envdoctor.observe.code.use import CodeFile, answers, find_code, items
from envdoctor.observe.documents.locks.lock import (
    Command,
    Lock,
    Locked,
    LockError,
    Wish,
    bound,
    counts,
    minor,
    pythons,
    read_text,
    with_python,
)
from envdoctor.observe.documents.locks.taking import Resolve, records, take
from envdoctor.observe.errors import ObservationError
from envdoctor.system.asking import ChildProblem
from envdoctor.system.files import Budget, Files, Spent
from envdoctor.system.message import Message, listed
from envdoctor.versions.pep440 import is_version
from envdoctor.versions.requirement import Requirement, is_own_build, normalise, read_requirement, said_by_tag

#: Formats by globs of the file's name in lower case, the first that fits: the module and the function that reads it.
_FORMATS = (
    ("*uv*.lock", "tool_locks.read_uv"),
    ("*poetry*.lock *pdm*.lock *pylock*.toml", "tool_locks.read_list"),
    ("*pyproject*.toml", "requirements.read_project"),
    ("sbom *.json", "tool_locks.read_sbom"),
    ("dockerfile *[._-]dockerfile dockerfile[._-]* *[._-]dockerfile[._-]*", "dockerfile.read"),
    ("containerfile *[._-]containerfile containerfile[._-]* *[._-]containerfile[._-]*", "dockerfile.read"),
    ("containers", "dockerfile.read_containers"),
    ("*.yml *.yaml *pixi.lock", "tool_locks.read_conda"),
    ("*.ipynb", "dockerfile.read_notebook"),
)
#: Names by what the text of a file without a name has.
_BY_TEXT = (
    ("uv.lock", r"(?m)^\[\[package\]\]\n(?:[^\[\n].*\n)*?source = \{"),
    ("poetry.lock", r"(?m)^\[\[packages?\]\]"),
    ("pyproject.toml", r"(?m)^\[(?:project|build-system|dependency-groups|tool\.[\w-]+)[].]"),
    ("Dockerfile", r"(?m)^FROM \S"),
    ("environment.yml", r"(?m)^(?:channels|dependencies|packages|environments):"),
)
_PIXI = "pixi.toml"
_LISTED = re.compile(r"\s*(?:[#-].*|[A-Za-z0-9][\w.-]*(?:\[[^]]*\])?\s*(?:[<>=!~;@#\\].*)?)?\Z")
#: What a virtual environment may begin with, and what locks leave out.
_SEEDS = {"pip", "setuptools", "wheel"}
_NAMED = r"(.+)\[([^][]*)\]\Z"
#: Of code beside a list: bytes of a file and of all; files that name one of the packages, of which more are not parsed.
_LARGEST_CODE, _TOGETHER = 1 << 20, 16 << 20
_MOST_FILES = 60
_SECONDS, _STEPS = 2.0, 50_000
_KINDS = ("module", "name", "attribute")
_BY_WHEELS = Message("compiled files are known by the names of wheels alone")


def open_lock(
    argument: str,
    target: FactSet,
    cwd: str,
    rows: Callable[..., Any],
    ledger: Ledger,
    *,
    option: str = "--lock",
    until: str = "",
) -> tuple[FactSet, tuple[Message, ...], tuple[Message, ...]]:
    """Return the facts of the environment that would be installed for the stated ``target``, notes on the reading, and
    what was not read of that which the file takes.

    ``argument`` is a path below ``cwd``, or ``-`` for standard input, perhaps with extras, groups or environments:
    ``uv.lock[gpu]``. ``rows`` gives the rows of a table of the matrix; errors name the ``option``. Open requirements
    count as an install takes them, on the day ``until`` if it is given, or as a resolver says. Raises
    :class:`LockError`.
    """
    path, names = argument, tuple[str, ...]()
    if (match := re.match(_NAMED, argument)) and not os.path.exists(os.path.join(cwd, argument)):
        path, names = match[1], tuple(name.strip() for name in match[2].split(",") if name.strip())
    markers = marker_values(target.value)
    wish = with_python(Wish(markers, names, cwd, rows, {}), markers["python_full_version"])
    try:
        text = read_text(os.path.join(cwd, path), path)
        lock = _reader(path, text)(text, path, wish)
        bound(len(lock.packages))
        lock = lock._replace(commands=tuple(_with_given(command, target) for command in lock.commands))
        facts, notes = _facts(lock, path, with_python(wish, lock.python), ledger, until)
        facts.update(_beside(os.path.join(cwd, path), facts, rows))
        return facts, notes, lock.unread
    except LockError as error:
        raise type(error)("{} {}: {}", option, path, error) from None
    except (RecursionError, MemoryError):
        raise LockError("{} {}: is nested too deeply, or too large, to be read", option, path) from None


def _with_given(command: Command, target: FactSet) -> Command:
    """Return the command with the releases that were typed (``--set pkg.torch=2.1.2``) in place of those asked for."""
    given = {fact.key.removeprefix("pkg."): str(fact.value) for fact in target.below("pkg.")}
    lines = [
        AskedRequirement(name, (), f"=={version.partition('+')[0]}", "--set")
        for name, version in given.items()
        if is_version(version)
    ]
    return command if command.image else command._replace(overrides=(*command.overrides, *lines))


def is_lock_name(name: str) -> bool:
    """Return whether a file of this name can be nothing but a lock: endings that others have too do not tell."""
    globs = {glob for globs, _ in _FORMATS for glob in globs.split()} - {"sbom", "*.json", "*.yml", "*.yaml", "*.ipynb"}
    return name == _PIXI or any(fnmatchcase(name.lower(), glob) for glob in globs)


def is_readable(path: str, rows: Callable[..., Any]) -> bool:
    """Return whether a list is of a format that is read; of a project's file, whether it says what it requires."""
    wish = Wish(marker_values(FactSet().value), (), os.path.dirname(path), rows, {})
    try:
        reader = _reader(path, text := read_text(path))
        return reader.__name__ != "read_project" or bool(reader(text, path, wish).packages)
    except (LockError, RecursionError, MemoryError):
        return False


def _reader(path: str, text: str) -> Callable[[str, str, Wish], Lock]:
    name = os.path.basename(path)
    if "." not in name:
        unnamed = "requirements.txt" * all(map(_LISTED.match, text.splitlines())) if name == "-" else name
        name = next((known_name for known_name, form in _BY_TEXT if re.search(form, text)), unnamed)
    if "@EXPLICIT" in text:
        name = "explicit.yml"
    elif re.search(r'"(?:bomFormat|spdxVersion)"', text[:100_000]):
        name = "sbom"
    elif name.endswith((".yml", ".yaml")) and re.search(r"(?m)^(?:services|kind)[ \t]*:", text):
        name = "containers"
    if not name:
        raise LockError("is of no format that can be told: give a file whose name says it, such as uv.lock")
    if name.endswith("Pipfile.lock"):
        raise LockError("is read no more: `pipenv requirements > requirements.txt` writes what --lock reads")
    if name.endswith(_PIXI):
        raise LockError("is not read: give pixi.lock, which `pixi lock` writes from it")
    if name.endswith(".py"):
        raise LockError("is a program: `uv pip compile setup.py -o requirements.txt` writes the list that --lock reads")
    fitting = (module for globs, module in _FORMATS for glob in globs.split() if fnmatchcase(name.lower(), glob))
    module, _, function = next(fitting, "requirements.read").partition(".")
    reader: Callable[[str, str, Wish], Lock] = getattr(import_module(f"{__package__}.{module}"), function)
    return reader


def _facts(
    lock: Lock, path: str, wish: Wish, ledger: Ledger, until: str | Resolve
) -> tuple[FactSet, tuple[Message, ...]]:
    chosen, undecided = _chosen(lock, wish)
    install = take(lock, chosen, wish, ledger, until)
    preset = {entry.name: entry for entry in install.packages}
    chosen.update(preset)
    for refusal in install.refused:
        if refusal.kind == "release" and refusal.package in chosen:
            unreleased = Unknown(Message("there is no release {} {}", refusal.package, refusal.version))
            chosen[refusal.package] = chosen[refusal.package]._replace(version=unreleased)
    facts = FactSet([records((*install.refused, *_of_python(lock.for_python, wish)), path)])
    if lock.python and wish.markers["python_version"] == minor(lock.python):
        key = "python.version" if lock.python.count(".") > 1 else "python.minor"
        facts.add(Fact(key, lock.python, path, "environment"))
    for name, package in chosen.items():
        source = "preset" if name in preset else "environment"
        facts.add(Fact(f"pkg.{name}", package.version, package.place, source))
    dists = tuple(_dist(package, ledger, lock, chosen) for package in chosen.values())
    facts.add(Fact("dist", Records(dists, lock.incomplete), path, "environment"))
    of_project = _own(path, wish)
    if lock.incomplete is None:
        facts.declare_complete("pkg", path)
        perhaps = dict.fromkeys(_SEEDS, Message("an environment may have it without its lock"))
        perhaps |= dict.fromkeys(of_project, Message("the project beside the list has its code"))
        others = ((name, Unknown(reason)) for name, reason in perhaps.items() if name not in chosen)
        facts.update(Fact(f"pkg.{name}", unknown, path, "environment") for name, unknown in others)
    left_out, certain = _unbrought(lock, chosen, path, wish, ledger)
    unlisted = {*left_out} - of_project
    behind = {ask for row in wish.rows("run-needs") if row.get("built") for ask in row["asks"]} if certain else unlisted
    facts.update(Fact(f"pkg.{name}", ABSENT, path, "environment") for name in unlisted - behind)
    rows = wish.rows("entry-statements") if install.all_known and not (lock.notes or lock.unread) else ()
    companions = (
        name for row in rows if row["name"] in chosen for name in row.get("runs_with", ()) if name not in chosen
    )
    lacks = tuple(dict.fromkeys((*companions, *sorted(behind & unlisted))))
    facts.add(Fact("environment.lacks", lacks, path, "environment"))
    names = {line.name for command in lock.commands for line in command.lines}
    facts.add(Fact("environment.brought", tuple(sorted(chosen.keys() - names)) if names else (), path, "environment"))
    if isinstance(until, str) and until:
        facts.add(Fact("environment.day", until, "--as-of", "given"))
    facts.update(lock.facts)
    every = (line for command in lock.commands for line in (*command.lines, *command.limits) if not command.image)
    listed_lines = tuple(
        {"package": line.name, "asks": line.specifiers, "place": line.by}
        for line in every
        if line.specifiers and not line.pin and counts(line.marker, wish)
    )
    lists = (("listed", listed_lines), ("unsure", install.unsure))
    facts.update(Fact(key, Records(rows_of), path, "environment") for key, rows_of in lists)
    extensions = {row["name"] for row in wish.rows("torch-extensions", "package")}
    wheels = (entry for entry in chosen.values() if entry.wheel and isinstance(entry.version, str))
    built = (_extension(entry) for entry in wheels if entry.name in extensions)
    builds = tuple(item for item in built if item["built_torch"] is not ABSENT or item["built_cuda"] is not ABSENT)
    facts.add(Fact("extension", Records(builds, _BY_WHEELS), path, ""))
    notes = [*lock.notes, *install.notes]
    if undecided:
        option = ": --target-python 3.11" if wish.markers["python_version"] is None else ""
        notes.append(Message("whether {} would be installed depends on the target{}", listed(undecided, 3), option))
    if (
        wish.markers["sys_platform"] is None
        and not lock.commands
        and any("platform" in marker for marker in wish.decided)
    ):
        notes.append(Message("no system was given: markers count as on x86-64 Linux (--target-platform names another)"))
    return facts, tuple(notes)


def _of_python(asked: AskedRequirement | None, wish: Wish) -> Iterator[TakingRefusal]:
    """Yield why an installer refuses the project with this Python."""
    releases = pythons(wish) if asked is not None else ()
    if asked is not None and releases and not any(allows(asked.specifiers, release) for release in releases):
        text = f"{asked.name} ({asked.by}: requires-python {asked.specifiers})"
        python = wish.markers["python_full_version"] or wish.markers["python_version"]
        yield TakingRefusal("python", asked.name, "", text, f"Python {python}")


def _own(path: str, wish: Wish) -> set[str]:
    """Return the packages of the table stack-modules of which the project in the list's folder has the code: a fork."""
    files, folder = Files(), os.path.dirname(os.path.join(wish.cwd, path))
    if not {"pyproject.toml", "setup.py"}.intersection(files.names_or_none(folder)):
        return set()
    tops = [os.path.join(place, name) for place in (folder, f"{folder}/src") for name in files.names_or_none(place)]
    there = {os.path.basename(top) for top in tops if os.path.isfile(os.path.join(top, "__init__.py"))}
    return {str(row["name"]) for row in wish.rows("stack-modules", "module") if row["module"] in there}


def _chosen(lock: Lock, wish: Wish) -> tuple[dict[str, Locked], list[str]]:
    """Return one entry a package: those that count for the target. A package that counts perhaps, or twice with
    different versions, has no version that is known."""
    chosen: dict[str, Locked] = {}
    undecided: list[str] = []
    perhaps: dict[str, Locked] = {}
    for locked in lock.packages:
        there = counts(locked.marker, wish)
        if there is None:
            perhaps.setdefault(locked.name, locked)
        elif there:
            before = chosen.get(locked.name)
            if before is None or isinstance(before.version, Unknown):
                chosen[locked.name] = locked
            elif before.version != locked.version and isinstance(locked.version, str):
                twice = Unknown(Message("{} and {} ask for different versions", before.place, locked.place))
                chosen[locked.name] = before._replace(version=twice)
    for name, locked in perhaps.items():
        if name not in chosen:
            undecided.append(name)
            some = Unknown(Message("{} asks for it on some targets only", locked.place))
            chosen[name] = locked._replace(version=some)
    return chosen, undecided


def _dist(locked: Locked, ledger: Ledger, lock: Lock, names: Collection[str]) -> dict[str, Value]:
    """Return the item of ``dist``, with the requirements that the ledger knows unless the lock has them as declared.
    Somebody else's build has requirements of its own."""
    item: dict[str, Value] = {"name": locked.name, "version": locked.version, "active": True}
    if locked.conda:
        return {**item, "kind": "conda", "requires": (), "requires_python": ABSENT}
    requires: tuple[str, ...] | Unknown = Unknown(Message("what {} requires is not known", locked.name))
    python = locked.requires_python
    released = ledger.package(locked.name) if not locked.declared and not locked.rebuilt else None
    if isinstance(locked.version, str) and released is not None and is_own_build(locked.version):
        release, _, build = locked.version.partition("+")
        requires = released.items("requires", "*", release)
        if isinstance(requires, tuple):
            # What PyPI's build asks of a platform, CUDA libraries, does not count for a build with a local tag. Who
            # resolved a whole lock saw that no more names are asked for, and overrides replace what others ask.
            requires = tuple(
                line
                for line in requires
                if (name := read_requirement(line).name) not in lock.overrides
                and (lock.incomplete is not None or name in names)
                and not (build and "platform" in line.partition(";")[2])
            )
        python = python or next((each.requires_python for each in released.releases if each.version == release), "")
    if isinstance(requires, Unknown) and locked.requires is not None:
        requires = locked.requires
    tags = {"tags": ("-".join(locked.wheel.removesuffix(".whl").split("-")[-3:]),)} if locked.wheel else {}
    return {**item, "requires": requires, "requires_python": python or ABSENT, **tags}


def _extension(locked: Locked) -> dict[str, Value]:
    build = said_by_tag(str(locked.version).partition("+")[2])
    python, _, platform = locked.wheel.split("-")[-3:]
    linux = build.new_abi is not None and platform == "linux_x86_64.whl"
    return {
        "package": locked.name,
        "version": locked.version,
        "built_torch": build.torch or ABSENT,
        "built_cuda": build.cuda or ABSENT,
        "built_says": "the name of its wheel",
        "built_abi": ("cxx11" if build.new_abi else "pre-cxx11") if linux else ABSENT,
        "unresolved": ABSENT,
        **({"python_tag": python} if python.startswith("cp") else {}),
    }


def _beside(path: str, facts: FactSet, rows: Callable[..., Sequence[Any]]) -> Iterator[Fact]:
    """Yield the fact ``beside``: what the code beside the list takes from the training stack. Yield nothing unless the
    list has a package that code may do without, or that runs with one that is not there. Only files that name such a
    package are parsed, by a bounded child."""
    table = rows("entry-statements")
    listed = [row for row in table if facts.text(f"pkg.{row['name']}") is not None]
    if not facts.words("environment.lacks") and not any(row.get("choice") for row in listed):
        return
    tops = {parse_statement(statement)[0].partition(".")[0] for row in listed for statement in row["statements"]}
    names = re.compile(rb"\b(?:" + "|".join(sorted(tops)).encode() + rb")\b")
    folder = os.path.dirname(path) or "."
    files = Files(budget=Budget(seconds=_SECONDS, size=_TOGETHER, steps=_STEPS))
    contents: list[tuple[CodeFile, bytes]] = []
    try:
        for file in find_code([folder], folder, files, tops)[0]:
            with suppress(OSError):
                content = files.whole(file.path, _LARGEST_CODE)
                is_wanted = len(contents) < _MOST_FILES and not file.path.endswith("setup.py") and names.search(content)
                contents += [(file, content)] if is_wanted else []
    except (ObservationError, Spent):
        return
    parsed = [(file, answer) for file, answer in answers(contents, seconds=5.0) if not isinstance(answer, ChildProblem)]
    imports = (use for use in items(parsed) if use["kind"] in _KINDS)
    taken_uses = (use for use in imports if str(use["module"]).partition(".")[0] in tops)
    if uses := dict.fromkeys((use["module"], use["name"], use["guarded"]) for use in taken_uses):
        columns = tuple(dict(zip(("module", "name", "guarded"), use, strict=True)) for use in uses)
        yield Fact("beside", Records(columns), folder, "code")


#: Files beside a list that may say what else is installed.
_TELLING = ("readme*", "install*", "setup*", "environment*", "pyproject*", "*.md", "*.rst", "*.txt", "*docker*")
#: Conditions on a recipe under which packages are needed; its framework may be another one.
_ASKING = r"recipe\.(?!framework)"
_WORDS = re.compile(r"[A-Za-z0-9][\w-]*")
#: Of prose and lists, lines that speak of an install; of other lines the first word may be a requirement.
_PROSE = ("readme*", "install*", "*.md", "*.rst", "*.txt")
_INSTALLS = re.compile(r"(?i)install|requir|depend|need|\bpip\b|\badd\b")
_LONGEST, _IN_ALL = 1 << 20, 8 << 20


def _unbrought(
    lock: Lock, chosen: Mapping[str, Locked], path: str, wish: Wish, ledger: Ledger
) -> tuple[list[str], bool]:
    """Return the packages of the stack (stack-modules, and what run-needs and entry-statements ask for) that an install
    of an open list does not bring: no release that the list allows requires them, and no file beside the list names
    them (``pip install flash-attn`` in a README). Return none if a line may bring anything. The second value says
    whether that is certain. If the requirements of a line are unknown, it is not, and only what recipes ask for is
    named, which few packages bring; nothing is named if such a line may come from an index or a repository of the
    user's own."""
    commands = lock.commands
    is_base = lock.notes or lock.unread or any(entry.before != () or entry.image for entry in commands)
    if not commands or is_base or any(entry.conda for entry in chosen.values()):
        return [], True
    lines = [line for entry in commands for line in entry.lines if counts(line.marker, wish) is not False]
    brought, whole = _brought(lines, wish, ledger)
    needing = {row["name"]: row["runs_with"] for row in wish.rows("entry-statements") if row.get("runs_with")}
    if brought.isdisjoint(needing):
        return [], True  # a list without them is not all that a run has
    # A list that names all that its packages require was written of an environment: what it leaves out is not there.
    is_frozen = whole and all(line.pin for line in lines)
    certain = is_frozen or all(ledger.package(line.name) is not None for line in lines)
    if not certain and (any(entry.elsewhere for entry in commands) or any(line.url for line in lines)):
        return [], False
    rows = [row for row in wish.rows("run-needs") if any(re.match(_ASKING, key) for key in row.get("when", ()))]
    asks = {read_requirement(line) for row in rows for line in row["asks"]}
    names = {entry.name for entry in asks if not (entry.specifiers or entry.extras)}
    others = {str(row["name"]) for row in wish.rows("stack-modules", "module")}.union(*needing.values())
    indexed = {row["name"] for row in wish.rows("packages", "package") if "wheel_index" in row}
    lacking = (names | others) - brought - chosen.keys() - indexed
    words = _words_in(dict.fromkeys((os.path.dirname(os.path.join(wish.cwd, path)), wish.cwd)))
    # What a README has installed apart from the list brings more: unsloth bitsandbytes.
    apart = [Requirement(name, "", "") for name in lacking & words]
    lacking -= words | _brought(apart, wish, ledger)[0]
    return sorted(lacking if certain else lacking & names), certain


def _brought(lines: Sequence[AskedRequirement | Requirement], wish: Wish, ledger: Ledger) -> tuple[set[str], bool]:
    """Return the names of all that the lines may bring, and whether they name all that they certainly bring."""
    requirements = [Requirement(line.name, line.specifiers, "", line.extras) for line in lines]
    names, visited = {line.name for line in lines}, set(requirements)
    pins = {line.name: line.specifiers for line in lines if exact(line.specifiers)}
    whole, seen = True, set[object]()
    for place, requirement in enumerate(requirements):  # it grows by what may be brought, which may need more
        package = ledger.package(requirement.name)
        if package is None:
            continue
        versions = [each.version for each in package.releases if allows(requirement.specifiers, each.version)]
        readable = frozenset(near for version in versions for near in package.neighbours(version) if near)
        if (key := (requirement.name, readable, requirement.extras)) in seen:
            continue  # another range with the same releases needs the same
        seen.add(key)
        inner = wish._replace(names=requirement.extras, decided={})
        for need in {need for version in readable for need in package.requires(version, requirement.extras)}:
            there = counts(need.marker, inner)
            whole = whole and (place >= len(lines) or there is not True or need.name in names)
            need = need._replace(marker="", specifiers=pins.get(need.name, need.specifiers))
            if there is not False and need not in visited:
                visited.add(need)
                requirements.append(need)
    return {requirement.name for requirement in requirements}, whole


def _words_in(folders: Iterable[str]) -> set[str]:
    """Return the words of the files in folders, and in those right below, that may say what else is installed."""
    files = Files(budget=Budget(seconds=1.0, size=_IN_ALL, steps=5_000))
    words = set[str]()
    with suppress(Spent):
        inside = {folder: files.names_or_none(folder) for folder in folders}
        paths = [os.path.join(folder, name) for folder, names in inside.items() for name in names]
        below = [path for path in paths if os.path.isdir(path) and not os.path.basename(path).startswith(".")]
        paths += [os.path.join(path, name) for path in below[:_MOST_FILES] for name in files.names_or_none(path)]
        pairs = ((path, os.path.basename(path).lower()) for path in paths)
        telling = (path for path, name in pairs if any(fnmatchcase(name, glob) for glob in _TELLING))
        for path in islice(telling, _MOST_FILES):
            is_prose = any(fnmatchcase(os.path.basename(path).lower(), glob) for glob in _PROSE)
            for line in files.text_or_empty(path, _LONGEST).replace("\\\n", " ").splitlines():
                most = 1 if is_prose and not _INSTALLS.search(line) else None
                words.update(normalise(word) for word in _WORDS.findall(line)[:most])
    return words
