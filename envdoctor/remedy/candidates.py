"""The changes by which a fix of a rule can be made: releases and builds, the nearest to the installed ones first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import product
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.facts.values import ABSENT, Absent, Fact, Range, Unknown, Value, spell
from envdoctor.judge.judging import Problem
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import no_wheel, wanted_here
from envdoctor.remedy.commands import Pin, Remedy, written
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import NotASpecifier, base_release, dotted, is_named_by, same_release, satisfies
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import normalise


class Build(NamedTuple):
    """A build of torch. ``cuda`` is absent for a CPU build and None if unknown; ``tag`` is the local tag to ask for
    (``cu118``, ``cpu``), None if the package index offers this build by itself. ``forbidden`` says why there is none
    for this environment."""

    cuda: str | Absent | None = None
    tag: str | None = None
    forbidden: Message | None = None


def torch_row(version: str, matrix: Matrix) -> Mapping[str, Any] | None:
    """Return the row of the table torch-builds for a version."""
    return next((row for row in matrix.rows("torch-builds") if is_named_by(version, row["key"])), None)


def no_build(name: str, version: str, facts: FactSet, matrix: Matrix) -> Message | None:
    """Return why this release cannot be installed for the judged Python, system and day; else None. The torch that it
    was compiled for does not count: installers bring along its requirements, but not another torch-npu."""
    minor = facts.text("python.minor")
    python = facts.text("python.version") or minor
    # A patch release that is not stated is the newest.
    base = base_release(python if python != minor else f"{minor}.99") if python is not None else None
    release, day = matrix.ledger.release(name, version), facts.text("environment.day")
    if release is not None and day is not None and release.date > day:
        return Message("{} {} was released on {}, after {}", name, version, release.date, day)
    row = (torch_row(version, matrix) if name == "torch" else None) or {}
    column = "python_aarch64" if facts.value("os.arch") == "aarch64" else "python"
    pythons = row.get(column) or row.get("python")
    specifiers = [release.requires_python if release is not None else "", pythons]
    for specifier in filter(None, specifiers):
        if base is not None and not satisfies(base, specifier):
            return Message("{} {} has no build for Python {} ({})", name, version, python, specifier)
    for row in matrix.rows("torch-companions", "plugin") if name == "torch" else ():
        plugin = facts.text(f"pkg.{row['name']}")
        own = base_release(plugin) if plugin is not None else None
        if own is not None and not same_release(version, own):
            return Message("{} {} is made for torch {}", row["name"], plugin, own)
    platform = wanted_here(facts.value)
    lacks = no_wheel(matrix, name, version, platform._replace(torch=None)) if platform is not None else None
    return Message("{} {} has no wheel for {}", name, version, lacks) if isinstance(lacks, str) else None


def torch_build(version: str, facts: FactSet, matrix: Matrix) -> Build:
    """Return the build of torch ``version`` to take in place of the installed one: for the same CUDA when there is one,
    else for the newest that the driver and every GPU can use."""
    current = facts.value("torch.cuda")
    if facts.get("torch.cuda").source == "assumed":
        return Build()  # PyPI's: the new release's will be too
    row = torch_row(version, matrix)
    if current is ABSENT:
        # CPU builds exist for every release; ROCm builds are not in the table.
        if not facts.absent("torch.hip"):
            return Build()
        return Build(ABSENT, None if row is None or _default(row, facts) is ABSENT else "cpu")
    if not isinstance(current, str) or dotted(current) is None or row is None:
        return Build()
    reasons = []
    # A build runs on every driver of its CUDA major or a later one; when the driver is not known, it is one for the
    # present build.
    driver = facts.text("driver.max_cuda")
    limit = _numbers(driver if driver is not None and dotted(driver) else current)[0]
    fitting = [cuda for cuda in map(str, row.get("cuda", [])) if _numbers(cuda)[0] <= limit]
    for cuda in sorted(fitting, key=lambda cuda: (cuda == current, _numbers(cuda)), reverse=True):
        build = _torch_build_for(version, cuda, facts, matrix)
        if build.forbidden is None:
            return build._replace(tag=None) if _default(row, facts) == cuda else build
        reasons.append(build.forbidden)
    if not reasons and "cuda" in row.get("open", []):
        return Build()  # the table does not know every build of this release
    return Build(forbidden=reasons[0] if reasons else Message("torch {} has no build for CUDA {}", version, current))


def _torch_build_for(version: str, cuda: str, facts: FactSet, matrix: Matrix) -> Build:
    """Return the build of torch ``version`` for CUDA ``cuda``, by its tag: the same release may be installed as another
    build, which a bare version would keep."""
    row = torch_row(version, matrix) or {}
    forbidden = _gpu_forbids(version, cuda, facts, matrix)
    if cuda not in [str(build) for build in row.get("cuda", [])]:
        forbidden = Message("torch {} has no build for CUDA {}", version, cuda)
    return Build(forbidden=forbidden) if forbidden is not None else Build(cuda, "cu" + cuda.replace(".", ""))


def builds_of(version: str, facts: FactSet, matrix: Matrix) -> Iterator[Build]:
    """Yield the builds of a release for a new environment: PyPI's, which every mirror has, then those of the wheel
    index, the newest CUDA first. For a machine that is known to have no GPU, yield the CPU build alone."""
    row, gpus = torch_row(version, matrix) or {}, facts.records("gpu")
    usual = _default(row, facts)
    bare = facts.absent("gpu") or (gpus is not None and not gpus.items and gpus.incomplete is None)
    if bare and usual is not ABSENT:
        yield Build(ABSENT, "cpu")
        return
    yield Build(usual if isinstance(usual, (str, Absent)) else None)
    has_index = usual is not ABSENT or facts.value("os.platform") == "windows"
    for cuda in sorted(map(str, row.get("cuda", ())), key=_numbers, reverse=True):
        if cuda != usual and has_index:
            yield _torch_build_for(version, cuda, facts, matrix)


def _default(row: Mapping[str, Any], facts: FactSet) -> Value:
    """Return the CUDA of the build that PyPI gives on this platform; Linux on x86_64 when nothing else is known."""
    if facts.value("os.platform") in ("windows", "darwin"):
        return ABSENT
    column = "pypi_cuda_aarch64" if facts.value("os.arch") == "aarch64" else "pypi_cuda"
    cuda = row.get(column)
    return ABSENT if cuda == "absent" else cuda if isinstance(cuda, str) else Unknown(Message("not in the table"))


def _gpu_forbids(version: str, cuda: str, facts: FactSet, matrix: Matrix) -> Message | None:
    if facts.value("os.platform") in ("windows", "darwin"):
        return None  # the table holds Linux builds
    from envdoctor.matrix.gpu_code import kernels

    machine = facts.text("os.arch") or "x86_64"
    for row in matrix.rows("torch-archs"):
        if row["cuda"] != cuda or row["machine"] != machine or not is_named_by(version, row["key"]):
            continue
        for gpu in facts.each("gpu"):
            cc = gpu.text("cc")
            if cc and dotted(cc) is not None and kernels(cc, row["archs"], cuda, matrix) == "none":
                return Message("torch {} for CUDA {} has no kernels for compute capability {}", version, cuda, cc)
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return dotted(text) or (0,)


_REQUIREMENT = r"([A-Za-z0-9][A-Za-z0-9._-]*?)\s*((?:~=|==|!=|<=|>=|<|>).*)?\Z"
_COLUMN = r"\{([a-z_]+)\.([a-z_]+)\}"
_LOWEST = r"(?:>=|==|~=)\s*(\d+(?:\.\d+)*)"
_TAG = r"==([0-9][0-9a-z.]*)\+([a-z0-9]+(?:\.[0-9]+)*)\Z"
#: How many releases of a range are tried, nearest to the installed one first.
_TRIES = 6
#: The other end of a range is tried up to so long before the nearest release.
_BEFORE = timedelta(days=365)


def is_about_a_record(fix: Mapping[str, Any]) -> bool:
    """Return whether a fix names columns of the record that its rule applied to."""
    return any(re.search(_COLUMN, text) for text in (*fix["constraints"], *fix["uninstall"]))


class Candidates(NamedTuple):
    """The facts of an environment, with the tables of releases and builds, from which changes are made. ``agreed`` are
    the changes of the plan: of the releases that a fix may take, theirs come first."""

    facts: FactSet
    matrix: Matrix
    agreed: Mapping[str, str] = {}

    def of_fix(self, fix: Mapping[str, Any], problem: Problem) -> Iterator[Remedy | Message]:
        """Yield the changes in order of preference, or a message why a change is impossible. Yield nothing for a fix
        that cannot be judged: advice, a command, a setting in words ("0.8 or lower")."""
        if fix["kind"] == "uninstall":
            filled = [self._filled(name, problem) for name in fix["uninstall"]]
            names = tuple(normalise(name) for name in filled if name)
            facts = tuple(_fix_fact(f"pkg.{name}", ABSENT) for name in names)
            yield Remedy(removed=names, facts=facts) if all(filled) else Message("what it is about is not known")
        elif fix["kind"] == "constraint":
            yield from self._constraint(fix, problem)
        elif fix["kind"] in ("set", "env"):
            yield from self._setting(fix)

    def of_range(self, name: str, versions: Sequence[str]) -> Iterator[Remedy | Message]:
        """Yield each of these releases of a package, with its companions."""
        for version in versions:
            yield self._remedy(self._with_companions([(name, f"=={version}")]))

    def _setting(self, fix: Mapping[str, Any]) -> Iterator[Remedy]:
        variables, settings = ({key: written(value) for key, value in fix[kind].items()} for kind in ("env", "set"))
        changes = {f"env.{name}": value for name, value in variables.items()} or fix["set"]
        rows = ((key, self.matrix.registry.find(key), raw) for key, raw in changes.items())
        try:
            facts = [_fix_fact(key, parse_value(spec, raw)) for key, spec, raw in rows if spec is not None]
        except FactTypeError:
            return
        yield Remedy(variables=variables, settings=settings, facts=tuple(facts))

    def _constraint(self, fix: Mapping[str, Any], problem: Problem) -> Iterator[Remedy | Message]:
        filled = [self._filled(text, problem) for text in fix["constraints"]]
        if not all(filled):
            yield Message("no release that satisfies it is known")
            return
        parsed = [re.match(_REQUIREMENT, text) for text in filled if text]
        pins = [(normalise(match[1]), (match[2] or "").replace(" ", "")) for match in parsed if match]
        if len(pins) < len(parsed):
            yield Message("its constraints cannot be read")
        elif fix.get("cuda"):
            # The releases nearest to the installed one with such a build, in the order of the CUDA versions.
            for version, cuda in product(self.versions(*pins[0]), fix["cuda"]):
                build = _torch_build_for(version, cuda, self.facts, self.matrix)
                yield self._remedy(self._with_companions([("torch", f"=={version}")]), build)
        elif len(pins) == 1 and (tagged := re.match(_TAG, pins[0][1])):
            yield self._companion(pins[0][0], tagged[1], tagged[2])
        else:
            yield from map(self._remedy, self._pins(pins))

    def _filled(self, text: str, problem: Problem) -> str | None:
        """Return the text filled with facts, and with the columns of the problem's record or of a record of the same
        package; None if one is unknown."""
        item = dict(problem.item)
        for placeholder in list(re.finditer(_COLUMN, text)):
            if (fact := self.facts.text(placeholder[0][1:-1])) is not None:
                text = text.replace(placeholder[0], fact)
                continue
            for record in self.facts.items(placeholder[1]):
                cells = {column: spell(cell) for column, cell in record.items() if isinstance(cell, str)}
                agree = [cells[column] == item[column] for column in item if column in cells]
                if agree and all(agree) and placeholder[2] in cells:
                    text = text.replace(placeholder[0], cells[placeholder[2]])
                    break
            else:
                return None
        return text

    def _companion(self, name: str, release: str, tag: str) -> Remedy | Message:
        """Return a release of a package of torch's own for the build ``tag``. The tag is left out if the index offers
        that build by itself and the release is not the installed one."""
        rows = [row for row in self.matrix.rows("torch-builds") if row.get(name) == release]
        # A release that several releases of torch share was built beside the first of them.
        tags = {"cu" + str(cuda).replace(".", "") for row in rows[:1] for cuda in row.get("cuda", [])}
        if rows and tag.startswith("cu") and tag not in tags:
            return Message("{} {} has no build {}", name, release, tag)
        torch, installed = self.facts.text("pkg.torch"), self.facts.text(f"pkg.{name}")
        build = torch_build(torch, self.facts, self.matrix) if torch is not None else Build()
        same = installed is not None and same_release(installed, release)
        is_usual = self.facts.get("torch.cuda").source == "assumed" or build.cuda is not None  # PyPI's build
        default = is_usual and build.tag is None and not same
        keep = None if default or self.facts.value("os.platform") == "darwin" else tag
        return Remedy({name: f"=={release}"}, cuda_tag=keep, facts=(_fix_fact(f"pkg.{name}", f"{release}+{tag}"),))

    def _pins(self, needs: Sequence[Pin]) -> Iterator[list[Pin]]:
        """Yield exact versions to try; for a package with unknown releases, yield its range."""
        ranges = [self.versions(name, specifier) for name, specifier in needs]
        if len(needs) == 1:
            ((name, specifier),), (fitting,) = needs, ranges
            # When none of the nearest will do, one of the time of the others may, or one from the other end of the
            # range, but not from long before.
            others = (*self._of_the_time(name, fitting), *self._near(name, fitting)[-1:])
            for version in dict.fromkeys((*fitting[:_TRIES], *others)):
                yield self._with_companions([(name, f"=={version}")])
            if not self.matrix.ledger.published(name) and not fitting:
                yield [(name, specifier)]
            return
        if all(ranges):
            for versions in product(*(dict.fromkeys((fitting[0], fitting[-1])) for fitting in ranges)):
                pins = [(name, f"=={version}") for (name, _), version in zip(needs, versions, strict=True)]
                yield self._with_companions(pins)

    def _of_the_time(self, name: str, fitting: Sequence[str]) -> list[str]:
        """Return the releases of a package that is missing from the time of the newest package that is there."""
        ledger = self.matrix.ledger
        present = [fact for fact in self.facts.below("pkg.") if isinstance(fact.value, str) and fact.source != "preset"]
        known = (ledger.release(fact.key[4:], str(fact.value)) for fact in present)
        day = max((release.date for release in known if release), default="")
        if self.facts.text(f"pkg.{name}") is not None or not day:
            return []
        pins = ((version, ledger.release(name, version)) for version in fitting)
        ways = {version: abs(date.fromisoformat(one.date) - date.fromisoformat(day)) for version, one in pins if one}
        return sorted(ways, key=ways.__getitem__)[: _TRIES - 1]

    def _near(self, name: str, fitting: Sequence[str]) -> list[str]:
        """Return the releases without those from long before the first of them."""
        dates = {version: getattr(self.matrix.ledger.release(name, version), "date", "") for version in fitting}
        first = dates[fitting[0]] if fitting else ""
        since = str(date.fromisoformat(first) - _BEFORE) if first else ""
        return [version for version in fitting if not dates[version] or dates[version] >= since]

    def versions(self, name: str, specifier: str) -> list[str]:
        """Return the releases of a package that satisfy a specifier and can be installed here (if none can, all that
        satisfy it): first those that all packages allow which ask for it, of these the nearest to the installed one.
        For a package with unknown releases: the release that an exact specifier names."""
        if specifier.startswith("==") and "," not in specifier and "*" not in specifier:
            return [specifier[2:]]
        released = self.matrix.ledger.published(name)
        try:
            fitting = [version for version in released if satisfies(version, specifier)]
        except NotASpecifier:
            return []
        if released and not fitting:
            bound = re.search(_LOWEST, specifier)
            return [bound[1]] if bound else []
        fitting = [entry for entry in fitting if not no_build(name, entry, self.facts, self.matrix)] or fitting
        fits = Releases.of(released, [version in fitting for version in released])
        wanted = next((item["wanted"] for item in self.facts.items("conflict") if item["package"] == name), ABSENT)
        window = wanted.removeprefix(name) if isinstance(wanted, str) else ""

        def order(version: str) -> tuple[bool, bool]:
            return f"=={version}" != self.agreed.get(name), not satisfies(version, window)

        return sorted(fits.by_distance(self.facts.text(f"pkg.{name}") or ""), key=order)

    def _with_companions(self, pins: list[Pin]) -> list[Pin]:
        """Add the torchvision and torchaudio that belong to a changed torch, when they are installed."""
        torch = next((specifier[2:] for name, specifier in pins if name == "torch"), None)
        if torch is None:
            return pins
        row, names = torch_row(torch, self.matrix) or {}, {name for name, _ in pins}
        companions = [entry["name"] for entry in self.matrix.rows("torch-companions", "package")]
        open_ = [name for name in companions if name not in names and isinstance(row.get(name), str)]
        return pins + [(name, f"=={row[name]}") for name in open_ if self.facts.text(f"pkg.{name}") is not None]

    def _remedy(self, pins: Sequence[Pin], build: Build | None = None) -> Remedy | Message:
        """Return the change, or why a table forbids it. ``build`` is that of torch; None keeps the installed CUDA."""
        facts: list[Fact] = []
        tag: str | None = None
        for name, specifier in pins:
            exact = specifier[2:] if specifier.startswith("==") and "," not in specifier else None
            forbidden = no_build(name, exact, self.facts, self.matrix) if exact else None
            if exact and forbidden is None and name == "torch":
                build = build or torch_build(exact, self.facts, self.matrix)
                forbidden, tag = build.forbidden, build.tag
                if build.cuda is not None:
                    facts += [_fix_fact("torch.cuda", build.cuda), _fix_fact("torch.hip", ABSENT)]
            if forbidden:
                return forbidden
            facts.append(_fix_fact(f"pkg.{name}", Range(specifier) if exact is None else exact))
        return Remedy(dict(pins), cuda_tag=tag, facts=tuple(facts))


def years_moved(name: str, pin: str, facts: FactSet, matrix: Matrix) -> float:
    """Return the years between the present release of a package and the one that a pin names, below zero for a way
    back; zero if a date is unknown."""
    versions = (facts.text(f"pkg.{name}") or "", pin.removeprefix("=="))
    releases = [matrix.ledger.release(name, version.partition("+")[0]) for version in versions]
    days = [date.fromisoformat(release.date).toordinal() for release in releases if release and release.date]
    return (days[1] - days[0]) / 365.25 if len(days) == 2 else 0.0


def _fix_fact(key: str, value: Value) -> Fact:
    return Fact(key, value, Message("the fix"), "given")
