"""What an open list certainly does not bring, of the packages that a run or code may need beside it."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice

from envdoctor.matrix.ledger import Ledger
from envdoctor.matrix.ledger_taking import AskedRequirement, allows, exact
from envdoctor.observe.documents.locks.lock import Lock, Locked, Wish, counts
from envdoctor.system.files import Budget, Files, Spent
from envdoctor.versions.requirement import Requirement, normalise, read_requirement

#: Files beside a list that may say what else is installed.
_TELLING = ("readme*", "install*", "setup*", "environment*", "pyproject*", "*.md", "*.rst", "*.txt", "*docker*")
#: Conditions on a recipe under which packages are needed; its framework may be another one.
_ASKING = r"recipe\.(?!framework)"
_WORDS = re.compile(r"[A-Za-z0-9][\w-]*")
#: Of prose and lists, lines that speak of an install; of other lines the first word may be a requirement.
_PROSE = ("readme*", "install*", "*.md", "*.rst", "*.txt")
_INSTALLS = re.compile(r"(?i)install|requir|depend|need|\bpip\b|\badd\b")
_LARGEST, _TOGETHER, _MOST_FILES = 1 << 20, 8 << 20, 60


def unbrought(
    lock: Lock, chosen: Mapping[str, Locked], path: str, wish: Wish, ledger: Ledger
) -> tuple[list[str], bool]:
    """Return the packages of the stack (stack-modules, and what run-needs and entry-statements ask for) that an install
    of an open list does not bring: no release that the list allows requires them, and no file beside the list names
    them (``pip install flash-attn`` in a README). Return none if a line may bring anything. The second value says
    whether that is certain. If the requirements of a line are unknown, it is not, and only what recipes ask for is
    named, which few packages bring; nothing is named if such a line may come from an index or a repository of the
    user's own."""
    commands = lock.commands
    is_base = lock.notes or any(entry.before != () or entry.image for entry in commands)
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
    whole = True
    for place, requirement in enumerate(requirements):  # it grows by what may be brought, which may need more
        package = ledger.package(requirement.name)
        if package is None:
            continue
        versions = [each.version for each in package.releases if allows(requirement.specifiers, each.version)]
        readable = {near for version in versions for near in package.neighbours(version) if near}
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
    files = Files(budget=Budget(seconds=1.0, size=_TOGETHER, steps=5_000))
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
            for line in files.text_or_empty(path, _LARGEST).replace("\\\n", " ").splitlines():
                most = 1 if is_prose and not _INSTALLS.search(line) else None
                words.update(normalise(word) for word in _WORDS.findall(line)[:most])
    return words
