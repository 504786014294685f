"""What an install of a list takes, by the ledger of released packages: its commands one after the other."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from envdoctor.facts.values import ABSENT, Fact, Range, Records, Unknown, Value
from envdoctor.matrix.ledger import Ledger
from envdoctor.matrix.ledger_taking import (
    AskedRequirement,
    Candidate,
    LedgerStep,
    PackageReleases,
    Solution,
    TakingRefusal,
    TakingSituation,
    allows,
    exact,
    failing,
    misnamed,
    refusals,
)
from envdoctor.observe.documents.locks.lock import Command, Lock, Locked, Wish, build_of, counts, line_of, on_system
from envdoctor.system.message import Message, listed
from envdoctor.versions.pep440 import is_version, join_specifiers, same_release
from envdoctor.versions.requirement import is_own_build, read_requirement
from envdoctor.versions.wheel_tags import wheel_target

#: The version of what comes from a repository, a folder or conda: it counts as whatever is asked for.
_ANY = "?"
#: A patch release that is not stated is the newest.
_PATCH = ".99"
#: Of a resolver's words so much is told.
_LONGEST = 300
#: What PyTorch's own index has beside PyPI.
_BUILDS = r"torch.*|functorch|triton.*|pytorch-triton.*|nvidia-.*|cuda-.*|xformers|fbgemm-gpu.*|vllm|flashinfer.*"
#: What it certainly has not.
_NOT_THERE = r"transformers|tokenizers|accelerate|datasets|peft|trl|diffusers|gradio|evaluate|sentence-transformers"
#: Kinds of refusals of what is built with another package.
_BUILT = ("build", "before")
#: So many names are told in one sentence.
_FEW = 6
#: An image is pushed within so many days of the release that it is named for.
_SLACK = timedelta(days=30)
_TOO_LATE = Message("which releases an install takes was not found in time")
_NO_PYTHON = Message("which releases an install takes is not known without the Python: --target-python 3.11")
#: Commands, each as the resolver takes it, and the packages whose release nobody can tell.
_Steps = Sequence[tuple[Command, LedgerStep, Sequence[str]]]
#: What asks a resolver for the pins of requirement lines, with the variables of markers: exact pins, or why there are
#: none. Raises :class:`~envdoctor.observe.documents.locks.lock.LockError`.
Resolve = Callable[[Sequence[str], Mapping[str, str | None]], tuple[str, ...] | Message]


class _TakenPackages(NamedTuple):
    """``packages`` are those that are taken beside the pinned ones, ``refused`` why an installer refuses the list;
    ``notes`` are sentences for the user. ``all_known``: there is nothing else, as far as requirements are known.
    ``unsure`` are releases that lines of unknown requirements may move, as items of the fact ``unsure``."""

    packages: tuple[Locked, ...] = ()
    refused: tuple[TakingRefusal, ...] = ()
    notes: tuple[Message, ...] = ()
    all_known: bool = False
    unsure: tuple[Mapping[str, Value], ...] = ()


def take(lock: Lock, chosen: Mapping[str, Locked], wish: Wish, ledger: Ledger, until: str | Resolve) -> _TakenPackages:
    """Return what the commands of a lock take for the target. ``chosen`` are its packages that count; after the day
    ``until`` (``2024-05-01``) nothing is taken. A function asks a resolver instead of the ledger."""
    if not lock.commands:
        return _TakenPackages()
    lines = [line for command in lock.commands for line in command.invalid]
    refused = [TakingRefusal("line", line.name, "", f"{line.url} ({line.by})") for line in lines]
    steps = [(command, *_step(command, wish, ledger)) for command in lock.commands]
    misspelled = wish.rows("names-that-do-not-install", "package")
    own, strange = _unread(steps, {*(entry.package for entry in refused), *(row["name"] for row in misspelled)}, ledger)
    unread = _of_unread(own, strange)
    minor = wish.markers["python_version"]
    if minor is None or not any(command.lines for command in lock.commands):
        is_open = any(isinstance(entry.version, Unknown) for entry in chosen.values())
        return _TakenPackages((), tuple(refused), (*unread, *[_NO_PYTHON] * (is_open and minor is None)))
    whole = wish.markers["python_full_version"] or minor + _PATCH
    markers = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    markers = {**markers, **{key: value for key, value in wish.markers.items() if value is not None}}
    every = {**wish.markers, **markers, "python_full_version": whole}
    systems = {"linux": "linux", "win32": "windows", "darwin": "darwin"}
    facts: dict[str, object] = {
        "python.minor": minor,
        "python.implementation": every["implementation_name"],
        "os.platform": systems.get(every["sys_platform"] or ""),
        "os.arch": every["platform_machine"],
    }
    target = wheel_target(facts.get)
    if target is None:
        return _TakenPackages(notes=(*unread, Message("which releases an install takes is known for CPython 3 alone")))
    if not isinstance(until, str):
        return _resolved(lock, chosen, wish, until)
    start = _TakenPackages(refused=tuple(refused), notes=unread)
    # Bounds that differ between systems are those of Linux, where runs are, unless another one is named.
    situation = TakingSituation(on_system(wish._replace(markers=every)), whole, target, until)
    taken = _installed(steps, chosen, wish, ledger, situation=situation, start=start)
    asked = [line for command, step, _ in steps for line in (*command.lines, *step.asked)]
    others = {line.name: line for line in asked if line.name in {*own, *strange}}
    return taken._replace(unsure=tuple(_unsure(taken, others, wish)))


def _installed(
    steps: _Steps,
    chosen: Mapping[str, Locked],
    wish: Wish,
    ledger: Ledger,
    *,
    situation: TakingSituation,
    start: _TakenPackages,
) -> _TakenPackages:
    """Return what the steps take one after the other, by the ledger."""
    refused, unread, misspelled = [*start.refused], start.notes, wish.rows("names-that-do-not-install", "package")
    releases = PackageReleases(ledger, situation)
    # The day of the newest release that the list pins.
    pins = [(line.name, exact(line.specifiers)) for command, _, _ in steps for line in command.lines]
    pinned = (ledger.release(name, pin) for name, pin in pins if pin)
    written = max((entry.date for entry in pinned if entry is not None), default="")
    others = PackageReleases(ledger, situation, behind=True, written=written)
    built_first = wish.rows("built-with-torch", "package")
    old = any("" < situation.until <= row["until"] for row in wish.rows("built-with-torch", "legacy"))
    places = {line.by for command, _, _ in steps for line in (*command.lines, *command.limits)}
    before = [entry for entry in chosen.values() if entry.place not in places]
    there = {entry.name: entry.version if isinstance(entry.version, str) else _ANY for entry in before}
    day = situation.until or ledger.days()[1]
    bounds, asks, fixed, image = dict[str, str](), dict[str, str](), set[str](), _Image({}, {}, frozenset(), "")
    for command, step, opaque in steps:
        if command.image:
            image = _image(step, ledger, situation)
            there.update(image.versions)
            fixed.update(image.versions)
            bounds.update(image.ranges)
            continue
        step = step._replace(kept=frozenset(fixed), unseen=step.unseen or not image.is_whole)
        there = {**{name: version or _ANY for name, version in command.before or ()}, **there}
        loose = {name: bounds.get(name, "") for name, version in there.items() if version == _ANY}
        step = step._replace(loose=loose)
        there.update(dict.fromkeys(opaque, _ANY))
        legacy = old if command.legacy is None else command.legacy
        first = [row for row in built_first if command.isolated and not (legacy and row["needs"] in there)]
        single = list(refusals(releases, step, first, unsure=legacy and command.legacy is None))
        refused += [*_lacking(command, step, there), *misnamed(step, misspelled), *single]
        as_it_is = [
            *(line.name for line in command.lines if line.url),
            *(entry.package for entry in single if entry.kind not in (*_BUILT, "gone")),
        ]
        result = _of_folder(command, _solved((releases, others), step, there, as_it_is), there)
        if isinstance(result, Message):
            return _TakenPackages((), tuple(refused), (*unread, result))
        if isinstance(result, TakingRefusal):
            is_told = any(entry.package == result.package and entry.kind not in (*_BUILT, "index") for entry in refused)
            return _TakenPackages((), tuple(refused) if is_told else (*refused, result), unread)
        new = {name: version for name, version in result.versions.items() if there.get(name) != version}
        refused += failing(releases, step, new, wish.rows("sources-that-fail", "package"))
        unread = (*unread, *_replaced(releases, there, new, chosen))
        for name, version in result.versions.items():
            tag = build_of(name, version, command.tags, wish)
            there[name] = version if tag is None else f"{version}+{tag}"
        bounds.update(_bounds(releases, bounds, opaque, result))
        asks.update((name, ",".join(sorted(result.clauses.get(name, ())))) for name in new)
        for name in step.newest:  # its default branch
            since = releases.fitting(name, True)[:1]
            bounds[name] = join_specifiers((bounds.get(name, ""), *(f">={entry}" for entry in since))) or ""
        fixed.update(new)
    stays = {name for name, version in image.versions.items() if there[name] == version != _ANY}
    added = tuple(
        _taken({name: version for name, version in there.items() if name not in stays}, bounds, chosen, asks, day)
    )
    names = {name for name, entry in chosen.items() if isinstance(entry.version, str)}
    brought = tuple(image.brings(name) for name in sorted(stays - names))
    notes = (*unread, *_note(added, day, wish, (chosen, ledger.packages())))
    is_whole = image.is_whole and not any(step.unseen or opaque for _, step, opaque in steps)
    return _TakenPackages((*brought, *added), tuple(refused), notes, is_whole)


def _replaced(
    releases: PackageReleases, there: Mapping[str, str], new: Mapping[str, str], chosen: Mapping[str, Locked]
) -> Iterator[Message]:
    """Yield a sentence for each pin of an earlier command that a later one moves, with who asks for another release."""
    for name, version in new.items():
        pin = there.get(name, _ANY)
        if _ANY in (pin, version) or name not in chosen or same_release(pin, version):
            continue
        if str(chosen[name].version).partition("+")[0] != pin.partition("+")[0]:
            continue  # what stands in the lock is the later line's
        asking = (line for other, its in new.items() for line in releases.required(Candidate(other, (), its)))
        requirement = next((line for line in asking if line.name == name and not allows(line.specifiers, pin)), None)
        if requirement is not None:
            details = chosen[name].place, version, requirement.by, name + requirement.specifiers
            yield Message("{} {} ({}) is replaced by {}: {} asks for {}", name, pin, *details)


class _Image(NamedTuple):
    """What a base image was made with: ``versions`` that an install of its day took, of which ``sure`` are pinned by
    what is pinned; the others are within ``ranges``. ``is_whole``: it has nothing else that is not named."""

    versions: Mapping[str, str]
    ranges: Mapping[str, str]
    sure: frozenset[str]
    place: str
    is_whole: bool = True

    def brings(self, name: str) -> Locked:
        """Return a package as it is in the image."""
        return Locked(name, self.versions[name] if name in self.sure else Range(self.ranges[name]), self.place)


def _image(step: LedgerStep, ledger: Ledger, situation: TakingSituation) -> _Image:
    """Return the image that a step made on the day of the release that it pins first."""
    first = step.asked[0]
    release = ledger.release(first.name, first.pin or "")
    if release is None:
        return _Image({first.name: first.pin or _ANY}, {}, frozenset((first.name,)), first.by, is_whole=False)
    then = situation._replace(until=release.date)
    both = PackageReleases(ledger, then), PackageReleases(ledger, then, behind=True)
    result = _solved(both, step._replace(unseen=False), {}, [])
    sure, requirements = {line.name: line for line in step.asked if line.pin}, list(step.asked)
    for line in (pins := list(sure.values())):  # it grows
        needs = both[0].required(Candidate(line.name, line.extras, line.pin or ""))
        requirements += needs
        new = [each for each in needs if each.pin and each.name not in sure]
        pins += new
        sure.update((each.name, each) for each in new)
    names = [line.name for line in requirements]
    versions = dict(result.versions) if isinstance(result, Solution) else dict.fromkeys(names, "")
    pinned = {name: line.pin or _ANY for name, line in sure.items()}
    versions = {name: pinned.get(name) or version or _ANY for name, version in versions.items()}
    until = str(date.fromisoformat(release.date) + _SLACK)
    ranges = {}
    for name in versions.keys() - sure.keys():
        releases = getattr(ledger.package(name), "releases", ())
        newest = [f"<={each.version}" for each in releases if each.date <= until][-1:]
        bounds = (line.specifiers for line in requirements if line.name == name)
        ranges[name] = join_specifiers((*bounds, *newest)) or ""
    return _Image(versions, ranges, frozenset(sure), first.by, isinstance(result, Solution))


def _unread(steps: _Steps, refused: Collection[str], ledger: Ledger) -> tuple[Collection[str], Collection[str]]:
    """Return the packages of the list whose requirements are not known: those of an own address, and others."""
    own = [
        line.name
        for command, step, opaque in steps
        for line in command.lines
        if line.url and line.name in {*opaque} - {*step.checkouts}
    ]
    lines = [line for command, step, _ in steps if command.deps and not command.image for line in step.asked]
    strange = [line.name for line in lines if line.name not in {*own, *refused} and not _is_read(ledger, line)]
    return dict.fromkeys(own), dict.fromkeys(strange)


def _of_unread(own: Collection[str], strange: Collection[str]) -> tuple[Message, ...]:
    """Return sentences on packages of unknown requirements: they may refuse what is taken."""
    first, second = (listed(names, 3 if len(names) > _FEW else _FEW) for names in (own, strange))
    unread = Message("what {} requires is not read: it is taken from a repository or a folder", first)
    unknown = Message("what these require is not known, nor whether the other lines fit it: {}", second)
    return (*([unread] if own else []), *([unknown] if strange else []))


def _unsure(taken: _TakenPackages, others: Mapping[str, AskedRequirement], wish: Wish) -> Iterator[Mapping[str, Value]]:
    """Yield each taken release in place of which an older one may be taken because of packages outside the ledger:
    what the table other-bounds says of them. One that it does not have bounds nothing that is judged."""
    bounds: dict[str, Collection[str]] = {}
    for row in wish.rows("other-bounds") if others else ():
        line, versions = others.get(row["package"]), row.get("versions", "")
        if line is not None and (allows(versions, line.pin) if line.pin else not (versions and line.is_open)):
            bounds[line.name] = row["bounds"]
    for entry in taken.packages:
        by = tuple(name for name, bound in bounds.items() if entry.name in bound)
        if by and isinstance(entry.version, str) and entry.asks is not None:
            asks = join_specifiers((entry.asks, f"<={entry.version.partition('+')[0]}"))
            yield {"package": entry.name, "asks": asks or ABSENT, "beside": by}


def _is_read(ledger: Ledger, line: AskedRequirement) -> bool:
    """Return whether the ledger knows what a package requires, of a pin what this release does."""
    package, pin = ledger.package(line.name), line.pin or ""
    before, behind = package.neighbours(pin.partition("+")[0]) if package is not None and pin else ("", "")
    return package is not None and before is not None and before == behind and is_own_build(pin)


def records(refused: Sequence[TakingRefusal], path: str) -> Fact:
    """Return the fact ``refused``."""
    columns = ("package", "kind", "version", "asked", "lacks", "next")
    items = tuple({column: getattr(refusal, column) or ABSENT for column in columns} for refusal in refused)
    return Fact("refused", Records(items), path, "environment")


def _resolved(lock: Lock, chosen: Mapping[str, Locked], wish: Wish, resolve: Resolve) -> _TakenPackages:
    lines = list(dict.fromkeys(line for command in lock.commands for line in _texts(command) if not command.image))
    pins = resolve(lines, wish.markers)
    if isinstance(pins, str):
        names = [line.name for command in lock.commands for line in command.lines]
        package = next((name for name in names if re.search(rf"\b{re.escape(name)}\b", pins)), names[0])
        return _TakenPackages(refused=(TakingRefusal("conflict", package, "", pins[:_LONGEST]),))
    requirements = [read_requirement(pin) for pin in pins]
    there = {line.name: exact(line.specifiers) or _ANY for line in requirements}
    place = Message("what uv would install")
    packages = tuple(line._replace(place=place) for line in _taken(there, {}, chosen, {}, ""))
    note = Message("--resolve asked uv, which used the network, what an install takes")
    return _TakenPackages(packages, notes=(note,))


def _texts(command: Command) -> Iterator[str]:
    """Yield the lines as a resolver reads them; constraints count for the packages that are named."""
    names = {line.name for line in command.lines}
    yield from (f"--extra-index-url https://download.pytorch.org/whl/{tag}" for tag in command.tags)
    for line in (*command.lines, *(limit for limit in command.limits if limit.name in names)):
        specifiers = f" @ {line.url}" if "://" in line.url else line.specifiers
        yield line_of(line.name, line.extras, specifiers, line.marker)


def _solved(
    both: Sequence[PackageReleases], step: LedgerStep, there: Mapping[str, str], refused: list[str]
) -> Solution | TakingRefusal | Message:
    """Return what an install takes or why it is refused, or why that is not known: releases that were not read may
    require what those before them or those behind them do, and only what is the same with both is told."""
    from envdoctor.matrix.ledger_solving import solve

    first = solve(both[0], step, there, refused) if step.asked else Solution({}, {})
    second = solve(both[1], step, there, refused) if both[0].guessed or step.checkouts else first
    if first is None or second is None:
        return _TOO_LATE
    pinned = {line.name for line in step.asked if line.pin}
    guessed = both[0].guessed | both[1].guessed
    is_refused = isinstance(first, TakingRefusal) and isinstance(second, TakingRefusal)
    if is_refused and guessed:  # each may rest on another guess
        sure = solve(both[0].certainly(), step, there, refused)
        if isinstance(sure, TakingRefusal):
            return sure
        return _TOO_LATE if sure is None else _without(sure, guessed - pinned)
    if isinstance(first, TakingRefusal):
        return first if isinstance(second, TakingRefusal) else _without(second, both[1].guessed - pinned)
    if isinstance(second, TakingRefusal):
        return _without(first, both[0].guessed - pinned)
    versions, other = first.versions, second.versions
    differing = {name for name in (*versions, *other) if versions.get(name) != other.get(name)}
    clauses = {name: first.clauses[name] & second.clauses[name] for name in first.clauses if name in second.clauses}
    return _without(Solution({**other, **versions}, clauses), differing)


def _without(solution: Solution, unknown: Collection[str]) -> Solution:
    versions = {name: _ANY if name in unknown else version for name, version in solution.versions.items()}
    return Solution(versions, {name: clause for name, clause in solution.clauses.items() if name not in unknown})


def _bounds(
    releases: PackageReleases, before: Mapping[str, str], new: Collection[str], step: Solution
) -> Iterator[tuple[str, str]]:
    """Yield the specifiers that releases meet which nobody tells: what they met before counts on where it certainly
    fits, for then they are not moved. ``new`` are those that the step itself brings."""
    for name, version in step.versions.items():
        clauses = ",".join(sorted(step.clauses.get(name, ()))) if version == _ANY else ""
        bound = before.get(name, "") if version == _ANY and name not in new else ""
        if bound and clauses and releases.known(AskedRequirement(name, (), bound, "")):
            stays = all(allows(clauses, release) for release in releases.allowed(name, bound))
            bound = bound if stays else ""
        yield name, join_specifiers((bound, clauses)) or ""


def _step(command: Command, wish: Wish, ledger: Ledger) -> tuple[LedgerStep, list[str]]:
    """Return the command as the resolver takes it, and the packages whose release nobody can tell."""
    opaque = [line for line in command.lines if _is_opaque(line) and counts(line.marker, wish) is not False]
    like = {line.name: line for line in opaque if line.url and ledger.package(line.name) and command.before is not None}
    lines = (*(line for line in command.lines if not _is_opaque(line)), *like.values())
    requirements, limits, overriding = (
        [line._replace(marker="", url="") for line in group if counts(line.marker, wish)]
        for group in (lines, command.limits, command.overrides)
    )
    if command.only:
        limits += _of_index(command.only, wish)
    of_index = ((name, _of_index(tag, wish)) for name, tag in command.of_index.items())
    limits += [limit for name, bounds in of_index for limit in bounds if limit.name == name]
    limits += [AskedRequirement(name, (), has, "--find-links") for name, has in (command.folder or {}).items()]
    overrides = {line.name: line for line in overriding}
    requirements = [overrides.get(line.name, line)._replace(extras=line.extras) for line in requirements]
    of_torch = (name for name in ledger.packages() if command.builds and re.fullmatch(_BUILDS, name))
    brought = {line.name for line in command.lines if line.url}
    completed = _completed(requirements, brought.union(overrides) if command.deps else None, ledger)
    given = frozenset((*brought, *of_torch, *completed))
    step = LedgerStep(tuple(requirements), tuple(limits), command.deps, command.upgrade, command.elsewhere)
    # Behind the last slash of an address, @v4.48.0.
    tags = {
        line.name: line.url.partition("#")[0].rpartition("/")[2].partition("@")[2]
        for line in like.values()
        if counts(line.marker, wish)
    }
    own = {row["name"]: row["repository"] for row in wish.rows("packages", "package") if "repository" in row}
    newest = frozenset(name for name in tags if name in own and _is_default_branch(like[name].url, own[name]))
    step = step._replace(
        overrides=tuple(overrides.values()), given=given, unseen=command.before is None, checkouts=tags, newest=newest
    )
    return step, [line.name for line in opaque]


def _completed(lines: Sequence[AskedRequirement], brought: Collection[str] | None, ledger: Ledger) -> Iterator[str]:
    """Yield the packages that lines pin to a withdrawn release for which the list itself has, or replaces, what the
    index lacks; ``brought`` is None where no requirement comes along."""
    for line in lines:
        package, pin = ledger.package(line.name), line.pin
        if package is not None and any(release.yanked and release.version == pin for release in package.releases):
            needs = {need.name for need in package.requires(pin or "", ())}
            if brought is None or not needs.isdisjoint(brought):
                yield line.name


def _lacking(command: Command, step: LedgerStep, there: Mapping[str, str]) -> Iterator[TakingRefusal]:
    """Yield what a command asks for that the one index it names does not have."""
    for line in step.asked if command.only and not step.unseen else ():
        if re.fullmatch(_NOT_THERE, line.name) and line.name not in there:
            yield TakingRefusal("lacking", line.name, "", str(line), command.only)


def _of_folder(
    command: Command, result: Solution | TakingRefusal | Message, there: Mapping[str, str]
) -> Solution | TakingRefusal | Message:
    """Return what a command comes to that takes nothing but the files of a folder: a refusal if that lacks any."""
    match result:
        case Solution(versions=versions) if command.folder is not None:
            names = {line.name for line in command.lines}  # what the list itself names comes first
            lacking = sorted({*versions} - {*command.folder, *there}, key=lambda name: (name not in names, name))
            return TakingRefusal("folder", lacking[0], "", listed(lacking, 6)) if lacking else result
    return result


def _of_index(tag: str, wish: Wish) -> Iterator[AskedRequirement]:
    """Limits to the releases that an index of builds has."""
    rows = wish.rows("torch-builds")
    built = [row for row in rows if tag == "cpu" or any(tag == "cu" + cuda.replace(".", "") for cuda in row["cuda"])]
    if not tag.startswith(("cpu", "cu")) or not built:
        return
    for column, name in (("key", "torch"), ("torchvision", "torchvision"), ("torchaudio", "torchaudio")):
        others = {row[column] for row in rows if column in row} - {row[column] for row in built if column in row}
        if others:
            yield AskedRequirement(name, (), ",".join(f"!={version}" for version in sorted(others)), f"the index {tag}")


def _is_opaque(line: AskedRequirement) -> bool:
    pin = exact(line.specifiers)
    return (bool(line.url) and not line.url.endswith(".whl")) or (pin is not None and not is_version(pin))


def _is_default_branch(url: str, repository: str) -> bool:
    """Return whether the address of a line is that of a repository without a revision, or with its main branch."""
    address = re.sub(r"\A\w+\+", "", url.strip()).partition("#")[0].removesuffix("@main").removesuffix("@master")
    return address.rstrip("/").removesuffix(".git").lower() == repository.lower()


def _taken(
    there: Mapping[str, str], bounds: Mapping[str, str], chosen: Mapping[str, Locked], asks: Mapping[str, str], day: str
) -> Iterator[Locked]:
    for name, version in there.items():
        before = chosen.get(name)
        if version == _ANY and bounds.get(name):
            range_ = Range(bounds[name])
            origin = Message("what an install on {} asks for", day)
            yield before._replace(version=range_) if before else Locked(name, range_, origin)
        is_known = before is not None and isinstance(before.version, str) and same_release(before.version, version)
        if version in ("", _ANY) or is_known:
            continue
        entry = before if before is not None else Locked(name, version, "")
        place = Message("what an install on {} takes", day)
        yield entry._replace(version=version, place=place, conda=False, asks=asks.get(name))


def _note(packages: Sequence[Locked], day: str, wish: Wish, names: Sequence[Collection[str]]) -> list[Message]:
    python = wish.markers["python_version"] or ""
    python = python if wish.markers["sys_platform"] else Message("{} for Linux", python)
    releases = [locked for locked in packages if isinstance(locked.version, str)]
    releases.sort(key=lambda locked: [locked.name not in group for group in names])
    text = listed([f"{locked.name} {locked.version}" for locked in releases], 3)
    return [Message("versions of an install with Python {} on {}: {}", python, day, text)] if releases else []
