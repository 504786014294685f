"""Commands that install exact versions or uninstall packages, written for the installer of the judged environment.

The user's own index or mirror is kept: nothing here replaces it. Wheels for one CUDA version come from an extra index
that the table ``packages`` names. Every command names the interpreter or the folder that it changes: the ``pip`` that
happens to be first on PATH may belong to another environment.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet, marker_values
from envdoctor.facts.values import ABSENT, Fact, Range, Unknown, spell
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.evaluate import evaluate
from envdoctor.judge.finding import Text
from envdoctor.judge.judging import Problem, errors_of
from envdoctor.matrix import ledger_taking as taking
from envdoctor.matrix.ledger import Ledger
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.wheel_tags import WheelTarget, wheel_target

_NAME = r"[a-z0-9]+(-[a-z0-9]+)*\Z"
_CLAUSE = r"(~=|==|!=|<=|>=|<|>)[0-9a-z.*]+"
_SPECIFIER = rf"({_CLAUSE}(,{_CLAUSE})*)?\Z"

#: A normalised name, and a specifier such as ``==2.4.1``; an empty one takes any version.
Pin = tuple[str, str]


class InstallPlace(NamedTuple):
    """The environment that a command changes: its installer (``pip``, ``uv``, ``conda``), interpreter and folder.
    Without an ``interpreter`` the facts came from elsewhere, and ``python`` stands for the interpreter there. With
    ``target`` the folder is a bare one (``pip install --target``)."""

    installer: str = "pip"
    interpreter: str | None = None
    folder: str | None = None
    target: bool = False

    @property
    def python(self) -> str:
        """Return the word for the interpreter in a command."""
        return self.interpreter or "python"

    @property
    def is_plain(self) -> bool:
        """Return whether its paths can be shown as they are: a terminal prints other paths escaped."""
        return f"{self.interpreter}{self.folder}".isprintable()


def place_of(facts: FactSet) -> InstallPlace:
    """Return the place of the judged environment, without the paths in a facts file of another machine."""
    own = [facts.get(key).source == "environment" for key in ("python.executable", "environment.path")]
    python = facts.text("python.executable") if own[0] else None
    folder = facts.text("environment.path") if own[1] else None
    bare = facts.value("environment.kind") == "path"
    return InstallPlace(facts.text("environment.installer") or "pip", python, folder, bare)


def install_commands(
    pins: Sequence[Pin], place: InstallPlace, cuda_tag: str | None, packages: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return shell commands for the pins; empty when a name, specifier or path is not plain enough to be put into a
    shell. ``packages`` are the rows of the table of that name. ``cuda_tag`` is the local tag of the CUDA build to keep
    (``cu118``, ``cpu``), None when the default build is right."""
    plain = all(re.match(_NAME, name) and re.match(_SPECIFIER, specifier) for name, specifier in pins)
    if not pins or not plain or not place.is_plain:
        return ()
    table = {entry["name"]: entry for entry in packages}
    if names := _of_conda(table, [name for name, _ in pins], place):
        pinned = [name + specifier for name, (_, specifier) in zip(names, pins, strict=True)]
        return (_joined([*_conda("install", place), "-c", "conda-forge", *pinned]),)
    built = {name for name, row in table.items() if cuda_tag and "wheel_index" in row}
    tagged = [name for name, specifier in pins if name in built and specifier.startswith("==")]
    words = _words("install", place)
    if place.installer == "uv":
        backend = [f"--torch-backend={cuda_tag}"] if tagged else []
        return (_joined([*words, *(name + specifier for name, specifier in pins), *backend]),)
    words += [f"{name}{specifier}+{cuda_tag}" if name in tagged else name + specifier for name, specifier in pins]
    if tagged:
        # The local tag makes the choice exact, so an extra index is enough and the user's own stays in force.
        words += ["--extra-index-url", table[tagged[0]]["wheel_index"].replace("{tag}", str(cuda_tag))]
    return (_joined(words),)


def uninstall_commands(
    names: Sequence[str], place: InstallPlace, packages: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return shell commands that remove packages; none for a bare folder, from which pip cannot uninstall."""
    plain = place.is_plain and all(re.match(_NAME, name) for name in names)
    if not names or not plain or (place.target and place.installer != "uv"):
        return ()
    table = {entry["name"]: entry for entry in packages}
    if conda_names := _of_conda(table, names, place):
        return (_joined([*_conda("remove", place), *conda_names]),)
    yes = [] if place.installer == "uv" else ["-y"]
    return (_joined([*_words("uninstall", place), *yes, *names]),)


def for_place(command: str, place: InstallPlace) -> str:
    """Return a rule's own command; one of pip's is written for the installer and interpreter of the environment."""
    pip, _, rest = command.partition(" ")
    if pip != "pip" or not place.is_plain:
        return command
    verb, _, rest = rest.partition(" ")
    return f"{_joined(_words(verb, place))} {rest}"


def _joined(words: Sequence[str]) -> str:
    import shlex  # only a run with findings pays

    return shlex.join(words)


def _words(verb: str, place: InstallPlace) -> list[str]:
    """Return ``/srv/env/bin/python -m pip install`` as words, or the same for uv."""
    bare = place.folder if place.target else None
    if place.installer == "uv":
        where = ["--target", bare] if bare else ["--python", place.python]
        return ["uv", "pip", verb, *where, *(["--upgrade"] if bare and verb == "install" else [])]
    return [place.python, "-m", "pip", verb, *(["--target", bare, "--upgrade"] if bare and verb == "install" else [])]


def _conda(verb: str, place: InstallPlace) -> list[str]:
    return ["conda", verb, *(["-p", place.folder] if place.folder else [])]


def _of_conda(table: Mapping[str, Any], names: Iterable[str], place: InstallPlace) -> list[str]:
    """Return conda's names of the packages; none for another installer, or if conda-forge lacks one of them."""
    rows = [(table.get(name, {}), name) for name in names]
    lacks = place.installer != "conda" or any(row.get("conda_forge") is False for row, _ in rows)
    return [] if lacks else [row.get("conda", name) for row, name in rows]


# --- the changes of a fix in an environment, and their outcome --------------------------------------------------------

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*\Z"


class Remedy(NamedTuple):
    """``pins`` are installed (``==2.4.1``), ``removed`` are uninstalled, ``variables`` are exported (``absent``:
    unset), ``settings`` go into the recipe. ``cuda_tag`` is the local tag of the builds to take, None for the default
    ones. ``facts`` are the changed facts."""

    pins: Mapping[str, str] = {}
    removed: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    settings: Mapping[str, str] = {}
    cuda_tag: str | None = None
    facts: tuple[Fact, ...] = ()

    def __add__(self, other: object) -> "Remedy":
        """Return both changes together: the later one decides about a package that both change."""
        if not isinstance(other, Remedy):
            return NotImplemented
        facts = {fact.key: fact for fact in (*self.facts, *other.facts)}
        removed = [name for name in self.removed if name not in other.pins]
        pins = {name: pin for name, pin in self.pins.items() if name not in other.removed}
        return Remedy(
            {**pins, **other.pins},
            tuple(dict.fromkeys((*removed, *other.removed))),
            {**self.variables, **other.variables},
            {**self.settings, **other.settings},
            other.cuda_tag or self.cuda_tag,
            tuple(facts.values()),
        )

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        """Return the key that tells two changes apart: each package or setting with its change."""
        settings = {**self.variables, **self.settings}
        return frozenset((*self.pins.items(), *((name, "absent") for name in self.removed), *settings.items()))

    def commands(self, place: InstallPlace, packages: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
        """Return shell commands in the order in which they are run."""
        from shlex import quote

        rows = list(packages)
        exported = {name: value for name, value in self.variables.items() if re.match(_VARIABLE, name)}
        exports = [
            f"unset {name}" if value == "absent" else f"export {name}={quote(value)}"
            for name, value in exported.items()
        ]
        removing = uninstall_commands(self.removed, place, rows)
        return (*removing, *install_commands(list(self.pins.items()), place, self.cuda_tag, rows), *exports)


NOTHING = Remedy()
_MOVED = Message("what the installer moves along")


def written(value: Any) -> str:
    """Return a value of a fix as text: ``absent``, ``true``, ``1``, ``a,b``."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return spell(value) if isinstance(value, (bool, float)) else str(value)


Predict = Callable[[FactSet], FactSet]


class Before(NamedTuple):
    """Facts as they are, with their errors, the same with errors that are folded into others (``all_errors``), and the
    unmet requirements: pairs of a package and who asks for it. ``predict`` adds the predicted memory of the run to
    changed facts."""

    facts: FactSet
    matrix: Matrix
    errors: Mapping[Problem, Text]
    all_errors: Mapping[Problem, Text]
    unmet: frozenset[tuple[str, str]]
    predict: Predict | None = None


class After(NamedTuple):
    """The outcome of a change. ``broken`` says which line of a list, or which requirement of an installed package, it
    would break; None if it breaks no known one."""

    facts: FactSet
    errors: Mapping[Problem, Text]
    broken: Message | None

    def new(self, now: Before) -> list[Problem]:
        """Return the errors that were not there before, not even folded into another error."""
        return [problem for problem in self.errors if problem not in now.all_errors]

    def objection(self, now: Before) -> Message | None:
        """Return the objection to the change: a new error, or a requirement that it would break; else None."""
        for new in self.new(now):
            return Message("it would bring {}: {}", new.rule_id, self.errors[new])
        return self.broken


def before(facts: FactSet, matrix: Matrix, predict: Predict | None = None) -> Before:
    """Return the state that a change is compared with. ``facts`` are derived ones."""
    return Before(facts, matrix, *errors_of(facts, matrix), _unmet(facts), predict)


def apply(remedy: Remedy, facts: FactSet, matrix: Matrix) -> FactSet:
    """Return the facts after the change. The installer moves other packages that a changed package asks for along: to
    an unknown release of the requested range. Lines of a list stay; packages that its install would add are moved, and
    of one that asks for another release than the changed one, the newest that allows it is taken."""
    after, of_list = with_facts(facts, remedy.facts, matrix), facts.records("refused") is not None
    changed = {name for name in remedy.pins if facts.value(f"pkg.{name}") is not ABSENT}
    taken = dict(_taken_instead(remedy.pins, after, _unmet(after) - _unmet(facts), matrix)) if of_list else {}
    if taken:
        after, changed = with_facts(facts, (*remedy.facts, *taken.values()), matrix), changed | taken.keys()
    new, moved = _unmet(after) - _unmet(facts), []
    for item in after.items("conflict"):
        package, need = str(item["package"]), item.get("wanted")
        if of_list and facts.get(f"pkg.{package}").source != "preset":
            continue
        askers = {asker.partition(" ")[0] for name, asker in new if name == package}
        releases = Range(need.removeprefix(package)) if isinstance(need, str) else Unknown(_MOVED)
        if askers and askers <= changed and package not in remedy.pins and (of_list or need is not ABSENT):
            moved.append(Fact(f"pkg.{package}", releases, _MOVED, "given"))
    return with_facts(facts, (*remedy.facts, *taken.values(), *moved), matrix) if moved else after


def _taken_instead(
    pins: Iterable[str], after: FactSet, unmet: Iterable[tuple[str, str]], matrix: Matrix
) -> Iterator[tuple[str, Fact]]:
    """Yield the packages that no line of the list names and that ask for another release of a changed package, with the
    newest release of each that allows the changed one."""
    releases = _releases_for(after, matrix)
    for package, text in unmet:
        name, changed = text.partition(" ")[0], after.text(f"pkg.{package}")
        if package not in pins or name in pins or changed is None or after.get(f"pkg.{name}").source != "preset":
            continue
        for version in releases.fitting(name, False):
            needs = releases.required(taking.Candidate(name, (), version))
            if all(taking.allows(need.specifiers, changed) for need in needs if need.name == package):
                yield name, Fact(f"pkg.{name}", version, _MOVED, "preset")
                break


def try_remedy(remedy: Remedy, now: Before) -> After:
    """Judge a change as a whole. Requirements of packages count, by their own metadata or the ledger. A new package may
    require nothing that the environment does not have. A list that an error has left is solved as an installer does."""
    after = apply(remedy, now.facts, now.matrix)
    after = after if now.predict is None else now.predict(after)
    unmet = _unmet(after)
    new = sorted(unmet - now.unmet)
    text = "it would break a requirement: {} asks for another {}"
    if new and new[0][0] in remedy.removed:
        text = "it would break a requirement: {} asks for {}"
    broken = against(remedy, now.facts) or (Message(text, new[0][1], new[0][0]) if new else None)
    errors = dict(errors_of(after, now.matrix)[0])
    needed, still = ({package for package, _ in pairs} for pairs in (now.unmet, unmet))
    of_list: dict[Problem, Text] = {}
    for problem, message in now.errors.items():
        rule, item = now.matrix.find(problem.rule_id), dict(problem.item)
        if rule is not None and rule.each == "refused" and item["kind"] == "conflict" and item["package"] in needed:
            # The requirements of the packages then show whether the list still contradicts itself.
            errors.pop(problem, None)
            of_list |= {problem: message}
            errors.update({problem: message} if item["package"] in still else {})
        elif problem not in errors and rule is not None and is_lost(rule, now, after):
            errors[problem] = message
    is_better = broken is None and len(errors) < len(now.errors) and errors.keys() <= now.errors.keys()
    if is_better and not errors.keys() & of_list.keys() and (why := _refused(remedy, now)) is not None:
        errors, broken = {**errors, **of_list}, None if of_list else why
    return After(after, errors, broken)


def _refused(remedy: Remedy, now: Before) -> Message | None:
    """Return why an installer refuses a list after the change, by what is certain in the ledger; None if it does not,
    if that is unknown, and for other sources than lists."""
    facts = now.facts
    kinds = {kind for item in facts.each("refused") if (kind := item.text("kind"))}
    if facts.records("refused") is None or not kinds <= {"conflict", "build", "before", "index"}:
        return None
    from envdoctor.matrix.ledger_solving import solve

    lines = {fact.key[4:]: f"=={str(fact.value).partition('+')[0]}" for fact in facts.below("pkg.") if _is_pin(fact)}
    lines |= {str(line.value("package")): line.text("asks") or "" for line in facts.each("listed")} | dict(remedy.pins)
    asked = [
        taking.AskedRequirement(name, (), line, name) for name, line in lines.items() if name not in remedy.removed
    ]
    refusal = solve(_releases_for(facts, now.matrix, certain=True), taking.LedgerStep(tuple(asked)), {}, ())
    if not isinstance(refusal, taking.TakingRefusal) or refusal.kind != "conflict":
        return None
    return Message("no release of {} would meet all that is asked for: {}", refusal.package, refusal.asked)


def _is_pin(fact: Fact) -> bool:
    return isinstance(fact.value, str) and fact.source != "preset" and is_version(fact.value)


def _releases_for(facts: FactSet, matrix: Matrix, *, certain: bool = False) -> taking.PackageReleases:
    """Return the releases of the ledger as an installer sees them on the judged machine."""
    python, target = facts.text("python.version") or "", wheel_target(facts.value) or WheelTarget()
    day = facts.text("environment.day") or ""
    return _releases_in(matrix.ledger, tuple(marker_values(facts.value).items()), python, target, day, certain)


@lru_cache(maxsize=2)  # each change is solved among the same releases: what is known of them stays
def _releases_in(  # noqa: PLR0917 (the key of the cache)
    ledger: Ledger,
    markers: tuple[tuple[str, str | None], ...],
    python: str,
    target: WheelTarget,
    day: str,
    certain: bool,
) -> taking.PackageReleases:
    return taking.PackageReleases(ledger, taking.TakingSituation(dict(markers), python, target, day), certain=certain)


def against(remedy: Remedy, facts: FactSet) -> Message | None:
    """Return a sentence with the line of a list whose range of releases forbids a change; None without one."""
    for line in facts.each("listed"):
        pin, asks = remedy.pins.get(str(line.value("package")), ""), line.text("asks")
        if pin.startswith("==") and asks is not None and not satisfies(pin.removeprefix("=="), asks):
            text = "{} asks for {}{}: that line must change with it"
            return Message(text, line.value("place"), line.value("package"), asks)
    return None


def is_lost(rule: Rule, now: Before, after: FactSet) -> bool:
    """Return whether the change makes it unknown if the rule applies, which was known before: the rule then counts."""
    outcome = evaluate(rule, after, now.matrix.registry) if rule.each is None else None
    return outcome is not None and outcome.holds is None and any(not now.facts.unknown(key) for key in outcome.missing)


def _unmet(facts: FactSet) -> frozenset[tuple[str, str]]:
    return frozenset(
        (package, asker)
        for item in facts.each("conflict")
        if (package := item.text("package")) is not None
        for asker in item.words("required_by") or ()
    )
