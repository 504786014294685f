"""``envdoctor facts``: gather the facts of one environment, one machine, one model and one recipe."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.app.reporting import Unjudged, unjudged
from envdoctor.facts.factset import FactSet, change
from envdoctor.facts.registry import FactTypeError, Registry, parse_value
from envdoctor.facts.values import ABSENT, Fact, Origin, Records, Unknown, Value
from envdoctor.judge.derivations import derive
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe import sources as observed
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.gather import gather
from envdoctor.observe.request import Request, Target
from envdoctor.observe.sources import notes_of, observe_environment, platform_name, unread_parts
from envdoctor.report.report import Notice
from envdoctor.system.cache import cache_home
from envdoctor.system.message import Message, did_you_mean, said_by

if TYPE_CHECKING:
    from datetime import date

    from envdoctor.observe.documents.facts_file import Assignment
    from envdoctor.observe.locate.layout import Layout
    from envdoctor.observe.model.config import Shape
    from envdoctor.observe.recipe.files import RecipeFileError
    from envdoctor.observe.recipe.recipe import Recipe
    from envdoctor.revision.hub.online import Access

_PYTHON = r"(3\.\d{1,2})(\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?)?\Z"
_PLATFORM = r"(?i)(linux|windows|win|macos|darwin)[-_](x86_64|amd64|aarch64|arm64)\Z"
_SYSTEMS = {"win": "windows", "macos": "darwin"}
_MOST_NOTICES = 3
_INSTEAD = "--set recipe.method=lora --set recipe.batch_size=2"
#: Facts of the machine that hold in a container on it.
_OF_THE_MACHINE = ("gpu", "driver.version", "driver.max_cuda")


class Sources(NamedTuple):
    """The sources of the facts. At most one of ``python``, ``path``, ``root``, ``lock``, ``sbom``, ``facts``
    and ``report`` names the environment (none: the default environment). ``target`` says for which machine it is
    judged: ``python``, ``platform``, ``gpu`` and ``driver``, as they are typed; ``as_of`` is the day (``2024-05-01``)
    on which the list of ``lock`` is installed, without which it takes the newest releases;
    ``resolve`` asks uv, which uses the network, what the install takes.
    ``assignments`` are ``key=value`` texts, or keys and values; the last one wins. ``given`` are facts that are known
    as values, which come before them, ``configured`` those of the configuration file ``configured_in``, which come
    first. ``recipe`` are files that describe the run, ``code`` scripts, notebooks and
    folders of the user's own. ``hash`` reads large files of the model, to compare them with a pin. ``cwd`` is the
    working directory unless it is given."""

    python: str | None = None
    path: str | None = None
    root: str | None = None
    lock: str | None = None
    sbom: str | None = None
    facts: str | None = None
    report: str | None = None
    target: Mapping[str, str] = {}
    as_of: str | None = None
    resolve: bool = False
    model: str | None = None
    recipe: Sequence[str] = ()
    code: Sequence[str] = ()
    assignments: Sequence["Assignment"] = ()
    given: Sequence[Fact] = ()
    configured: Sequence["Assignment"] = ()
    configured_in: str = "configuration"
    gpu: bool = True
    hash: bool = False
    cache: bool = True
    environ: Mapping[str, str] = os.environ
    cwd: Path | None = None

    @property
    def named(self) -> list[str]:
        """The sources of an environment that were given."""
        return [name for name in observed.SOURCES if getattr(self, name, None)]

    def folder(self) -> str:
        """Return the folder that relative paths are read from."""
        return str(self.cwd or working_directory() or os.sep)

    def access(self, matrix: Matrix, **more: Any) -> "Access":
        """Return the access to snapshots of models, in the local cache and on the Hub."""
        from envdoctor.revision.hub.online import Access

        aliases = matrix.part("families", "organisations")
        return Access(self.folder(), self.environ, aliases, hash=self.hash, **more)


def working_directory() -> Path | None:
    """Return the working directory; None if it has been deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None


class Gathered(NamedTuple):
    """Facts, with derived ones, and their environment (``target``); notices about problems on the way, parts that are
    not judged, and the ``layout`` of an environment on disk; ``text`` is a pasted report."""

    facts: FactSet
    target: Target
    notices: tuple[Notice, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    layout: "Layout | None" = None
    text: str = ""

    @property
    def interpreter(self) -> str | None:
        """Return the interpreter that experiments may run in; None if the sources name none, or if the target is only
        read: a folder, a document."""
        python = self.facts.text("python.executable")
        read_only = self.target.kind in ("path", "root", *observed.DOCUMENTS)
        return None if read_only else python

    def needed_interpreter(self, purpose: Message) -> str:
        """Return the interpreter for a ``purpose`` (``tokens are counted``). Raises :class:`UsageProblem`."""
        if self.interpreter is None:
            text = "{} names no interpreter, but {} in one; give --python PATH"
            raise UsageProblem(Message(text, self.target.path, purpose))
        return self.interpreter


def collect_facts(sources: Sources, matrix: Matrix, *, links: bool = False) -> Gathered:
    """Read the sources in order: environment and machine, recipe, model, code, assignments; then derive facts. With
    ``links`` the imports of the installed packages are followed too, which takes seconds the first time, and scripts
    that the recipe starts are read as code if no code was given. Raises
    :class:`UsageProblem` for the user's errors, :class:`JobError` if the environment cannot be read."""
    typed, started = sources.model is not None, not sources.code
    with told_as(None, ObservationError):
        image = _image(sources)
        environment = _environment(sources._replace(lock=image) if image else sources, matrix, for_run=links)
        request = Request(
            environ=sources.environ,
            cwd=sources.folder(),
            code=(*sources.code, *(name for name in sources.recipe if name.endswith(".py"))),
            platform=platform_name(),
            gpu=sources.gpu,
            rows=matrix.rows,
            variables=matrix.registry.names("env"),
            cache=cache_home(sources.environ) if sources.cache else None,
        )
        rooms = ("source",) if links and environment.layout is not None else ()
        facts = observe_environment(environment, request, rooms)
        if image is not None:  # it runs on this machine, with what it brings itself
            machine = gather(request, ["machine"])
            facts.update(fact for fact in machine if fact.key in _OF_THE_MACHINE)
        request = request._replace(layout=environment.layout)
        notes: list[Notice] = []
        if sources.recipe:
            facts, sources = _with_recipe(facts, request, sources, matrix, notes, as_code=links)
        elif sources.model is not None:
            facts = _with_model(facts, request, sources, matrix)
        if sources.code:
            for key in ("use", "code."):
                facts.drop(key)
            facts = gather(request._replace(facts=facts, code=tuple(sources.code)), ["code"])
    if (repo := facts.text("model.repo")) is not None and facts.value("model.path") is ABSENT:
        notes += _misspelt(repo, matrix)
        bare = (sources.model or repo).partition("@")[0]
        if "/" in repo and repo.lower().endswith(f"/{bare.lower()}"):
            notes.append(Notice("note", Message("{} is taken for {}, the only known model of that name", bare, repo)))
    level = "note" if environment.target.kind == "lock" else "warning"
    notices = [*(Notice(level, note) for note in notes_of(environment, facts)), *notes]
    elsewhere = environment.target.kind in observed.DOCUMENTS and ("pin.state" in facts or sources.model is None)
    if not elsewhere or (sources.model is not None and facts.text("model.path") is not None):
        notices += _add_pin(facts, sources, matrix)
    facts = with_assignments(facts, sources, matrix)
    about = (facts, environment.target, sources.model, unread_parts(environment), sources.code)
    gaps = unjudged(*about, typed=typed, started=started and bool(sources.recipe), named=bool(sources.named))
    return Gathered(facts, environment.target, tuple(notices), gaps, environment.layout, environment.text)


def _image(sources: Sources) -> str | None:
    """Return the recipe that names the image it runs in, unless another source names the environment; else None."""
    if sources.named:
        return None
    from envdoctor.observe.recipe.parts import is_containers

    return next((name for name in sources.recipe if is_containers(os.path.join(sources.folder(), name))), None)


def _environment(sources: Sources, matrix: Matrix, *, for_run: bool) -> observed.Environment:
    empty = [name for name in observed.SOURCES if getattr(sources, name, None) == ""]
    if empty:
        raise UsageProblem("{} is empty: is it a variable that is not set?", observed.SOURCES[empty[0]].option)
    chosen = sources.named
    if len(chosen) > 1:
        options = ", ".join(observed.SOURCES[name].option for name in chosen)
        raise UsageProblem("{}: give one of them, an environment has one source", options)
    name = chosen[0] if chosen else "default"
    day: Any = "" if sources.as_of is None else _day(sources.as_of, sources.lock, matrix)
    day = _resolver(sources) if sources.resolve else day
    run = for_run and bool(sources.recipe or sources.code or sources.model)
    ask = observed.Ask(sources.environ, sources.folder(), matrix, lambda: FactSet(_assigned(sources, matrix)), day, run)
    try:
        return observed.SOURCES[name].open(getattr(sources, name, None), ask)
    except ObservationError as error:
        if not chosen or not error.usage:
            raise
        raise _misplaced(error, name, [str(getattr(sources, name)).partition("[")[0]], sources) from None


def _resolver(sources: Sources) -> Callable[..., tuple[str, ...] | str]:
    """Return a function that asks uv for the pins of a list."""
    if sources.lock is None or sources.as_of is not None:
        raise UsageProblem("--resolve asks uv what the list of --lock takes today: give --lock FILE, and no --as-of")
    from envdoctor.remedy.installer import NoResolver, Wanted, resolve

    def ask(lines: Sequence[str], markers: Mapping[str, str | None]) -> tuple[str, ...] | str:
        system, machine = markers["platform_system"] or "linux", markers["platform_machine"] or "x86_64"
        request = Wanted(lines, str(markers["python_version"]), system.lower(), machine.lower())
        try:
            return resolve(request, sources.environ, sources.folder())
        except NoResolver as error:
            failed = ObservationError("--resolve: {}", error)
            failed.usage = False
            raise failed from None

    return ask


def _day(day: str, lock: str | None, matrix: Matrix) -> str:
    """Return the day of ``--as-of``; empty if the ledger has nothing newer."""
    first, last = matrix.ledger.days()
    if lock is None:
        raise UsageProblem("--as-of says when the list of --lock is installed: give --lock FILE")
    if day_of("--as-of", day).isoformat() < first:
        raise UsageProblem("--as-of {}: the ledger of releases begins on {}", day, first)
    return day if day < last else ""


def day_of(option: str, text: str) -> "date":
    """Return the day that an option gives. Raises :class:`UsageProblem`."""
    from datetime import date

    with suppress(ValueError):
        day = date.fromisoformat(text)
        if day.isoformat() == text:
            return day
    raise UsageProblem("{} {}: a day is expected, as 2024-05-01", option, text[:40])


def _misplaced(
    error: ObservationError, option: str, words: Sequence[str], sources: Sources, *, as_code: bool = False
) -> UsageProblem:
    """Return the error about the words of an option, with the option that takes them; ``as_code`` where the command
    judges code too."""
    from envdoctor.app.words import taken_otherwise

    is_code, text = len(words) == 1 and words[0].endswith((".py", ".sh")), said_by(error)
    if as_code and not is_code and getattr(error, "started", None) is not None:
        text = Message("{}, or give the script that reads it: --code FILE", text)
    text = taken_otherwise(text, option, words, sources.folder())
    if as_code and is_code:
        text = Message("{}; code without such a trainer is judged with --code FILE.py", text)
    return UsageProblem(text)


def _without_run(
    error: "RecipeFileError",
    read: "Callable[[str], Recipe]",
    sources: Sources,
    notices: list[Notice],
    *,
    as_code: bool,
) -> Sources:
    """Return the sources without the recipes that describe no run; their code is judged, or what is given beside them
    (code, another recipe, any source beside a command). If there is nothing to judge, raise the ``error`` about them as
    :class:`UsageProblem`."""
    from envdoctor.observe.recipe.files import is_command

    alone, unknown = dict[str, tuple[str, ...]](), list[str]()
    for name in sources.recipe:
        try:
            read(name)
        except type(error) as problem:
            # A script may be code alone, or start such code.
            if name in sources.code or (as_code and problem.started):
                notices.extend(_missing(problem.missing) if as_code and not sources.code else ())
                alone[name] = problem.started or ()
            elif as_code and problem.started is not None:
                unknown.append(name)
    runs = len(alone) + len(unknown) < len(sources.recipe)
    if alone:
        text = "{} describes no run: only its code is judged, not what the run needs of memory"
        notices.append(Notice("note", Message(text, ", ".join(alone))))
    unknown = unknown if alone or runs or sources.code else []
    for name in unknown:
        text = "--recipe {}: describes no run of a framework that is known; say in its place what it does ({})"
        said = Message(text, "command" if is_command(name) else name, _INSTEAD)
        notices.append(Notice("note" if alone or runs else "error", said))
    code = {**alone, **dict.fromkeys(unknown, ())}
    if not code:
        others = sources.code or any(getattr(sources, name, None) for name in observed.SOURCES)
        if not (as_code and others and all(map(is_command, sources.recipe))):
            raise _misplaced(error, "recipe", sources.recipe, sources, as_code=as_code) from None
        notices.append(Notice("error", said_by(error)))
        code = dict.fromkeys(sources.recipe, ())
    return sources._replace(
        recipe=tuple(name for name in sources.recipe if name not in code),
        code=tuple(dict.fromkeys((*sources.code, *chain(*code.values())))),
    )


def _with_recipe(
    facts: FactSet, request: Request, sources: Sources, matrix: Matrix, notices: list[Notice], *, as_code: bool
) -> tuple[FactSet, Sources]:
    """Return the facts with those of the recipe and the model; and the sources with the model that the recipe names, if
    it is known, and with its scripts ``as_code`` if no code was given."""
    from envdoctor.observe.recipe.files import RecipeFileError
    from envdoctor.observe.recipe.formats import Formats
    from envdoctor.observe.recipe.recipe import Recipe, read_recipe

    # Versions of the packages, whose releases decide about defaults.
    installed = facts.copy([*facts, *_assigned(sources, matrix)]).value
    formats = Formats.with_releases(matrix)

    def read(*names: str) -> Recipe:
        return read_recipe(names, sources.folder(), formats, installed, sources.code)

    try:
        recipe = read(*sources.recipe)
    except RecipeFileError as error:
        sources = _without_run(error, read, sources, notices, as_code=as_code)
        if not sources.recipe:
            return (_with_model(facts, request, sources, matrix) if sources.model else facts), sources
        recipe = read(*sources.recipe)
    if as_code and not sources.code:
        sources = sources._replace(code=tuple(dict.fromkeys(recipe.code)))
    for key in ("recipe.", "recipe_file", "recipe_key"):
        facts.drop(key)
    facts.update(recipe.facts)
    notices += _notices(facts, recipe)
    said = recipe.model.value.strip() if recipe.model is not None and isinstance(recipe.model.value, str) else ""
    if sources.model is not None:
        ends = {os.path.basename(name.partition("@")[0].rstrip("/")).lower() for name in (said, sources.model)}
        if recipe.code and said and len(ends) > 1:
            text = "the script was followed for {}, which the recipe names; what it does for {} is not known"
            notices.append(Notice("note", Message(text, said, sources.model)))
        return _with_model(facts, request, sources, matrix), sources
    named_in = [fact.value for fact in (recipe.model, recipe.revision) if fact is not None and fact.value]
    model = "@".join(value for value in named_in if isinstance(value, str))
    guessed = recipe.model is not None and recipe.model.source == "assumed"
    # "REQUIRED" stands for a name; none on the Hub is of capitals alone.
    blank = said.isupper() and "/" not in said
    if recipe.model is None or not said or blank or (guessed and _named_by_its_end(said, matrix) is None):
        return facts, sources
    origin = recipe.model.origin
    named = sources._replace(model=model)
    try:
        known = _with_model(facts, request, named, matrix)
    except ObservationError:
        known_already = any(facts.text(f"model.{name}") is not None for name in ("repo", "path", "type", "family"))
        end = None if known_already else _named_by_its_end(said, matrix)
        if end is None:
            text = Message("{} names the model {}, which is not on this machine: --model names it", origin, model)
            notices.append(Notice("warning", text))
            return facts, sources
        text = Message(
            "{} names the model {}, which is not on this machine: judged as {}, by its name", origin, model, end
        )
        notices.append(Notice("note", text))
        named = sources._replace(model=end)
        known = _with_model(facts, request, named, matrix)
    known.update([fact._replace(origin=origin) for fact in known.below("model.") if fact.origin == "--model"])
    return known, named


def _named_by_its_end(path: str, matrix: Matrix) -> str | None:
    """Return the model that a path ends with (``…/ZhipuAI/glm-4-9b-chat``), if its shape is known by name."""
    from envdoctor.observe.model.names import is_repo_name

    words = [word for word in re.split(r"[/\\]", path) if word]
    if cached := next((word for word in words if word.startswith("models--")), None):  # a folder of the Hub's cache
        words = cached.split("--")[1:]
    vendors = {name.lower() for pair in matrix.part("families", "organisations").items() for name in pair}
    for name in ("/".join(words[-2:]), words[-1] if words else ""):
        shape = shape_by_name(name, matrix) if is_repo_name(name) else None
        if shape is not None and not shape.bare and (shape.vendor or name.lower().partition("/")[0] in vendors):
            return name
    return None


def shape_by_name(name: str, matrix: Matrix) -> "Shape | None":
    """Return the shape of the model of this name by the table model-shapes; None if none in it can be it."""
    from envdoctor.observe.model.config import shape_of

    return shape_of(name, matrix.rows("model-shapes"), matrix.rows("model-shapes", "suffix"))


def _misspelt(repo: str, matrix: Matrix) -> list[Notice]:
    """Return a notice with the known model of nearly this name, if no known model has it. Another number is another
    model."""
    from difflib import get_close_matches

    names = {name.lower(): name for row in matrix.rows("model-shapes") for name in row["names"]}
    if repo.lower() in names:
        return []
    shape = shape_by_name(repo, matrix)
    if shape is not None and not shape.unknown:
        return []
    near = get_close_matches(repo.lower()[:200], names, n=1, cutoff=0.95)
    if not near or re.findall(r"\d+", near[0]) != re.findall(r"\d+", repo):
        return []
    return [Notice("warning", Message("no model is known as {}; did you mean {}?", repo, names[near[0]]))]


def _with_model(facts: FactSet, request: Request, sources: Sources, matrix: Matrix) -> FactSet:
    from envdoctor.observe.model.names import resolve

    aliases = matrix.part("families", "organisations")
    source = resolve(str(sources.model), cwd=sources.folder(), environ=sources.environ, aliases=aliases)
    for key in ("model.", "model_use"):
        facts.drop(key)
    return gather(request._replace(facts=facts, model=source), ["model"])


def without_pin(reason: Message) -> list[Fact]:
    """Return the facts ``pin.*`` as absent, for this reason."""
    return [Fact(f"pin.{name}", ABSENT, reason, "pin") for name in ("revision", "state", "files")]


def _add_pin(facts: FactSet, sources: Sources, matrix: Matrix) -> list[Notice]:
    """Add ``pin.*`` if the project has a file of pins and a model is judged; otherwise add them as absent."""
    if sources.model is None:
        facts.update(without_pin(Message("no --model")))
        return []
    from envdoctor.revision.hub.snapshot import PINS, find_pins

    path = find_pins(sources.folder())
    if path is None:
        facts.update(without_pin(Message("no {}", PINS)))
        return []
    from envdoctor.app.pins import add_pin

    return add_pin(facts, path, sources.model, sources.access(matrix, offline=True))


def with_assignments(facts: FactSet, sources: Sources, matrix: Matrix) -> FactSet:
    """Return the facts with those of ``--set`` and the configuration, and the facts that follow from them. Raises
    :class:`UsageProblem`."""
    assigned = [_understood(fact, matrix) if fact.key == "gpu" else fact for fact in _assigned(sources, matrix)]
    changed = change(facts, assigned, matrix.registry) if assigned else facts
    derive(changed, matrix, cache_home(sources.environ) if sources.cache else None)
    return changed


def _assigned(sources: Sources, matrix: Matrix) -> list[Fact]:
    """Return the facts of the configuration, of the target and of ``--set``; the last one wins. Raises
    :class:`UsageProblem`."""
    targets = [*target_facts(sources.target, matrix.registry), *sources.given]
    if not (sources.configured or sources.assignments):
        return targets
    from envdoctor.observe.documents.facts_file import AssignmentError, parse_assignments

    def formats() -> Sequence[Mapping[str, Any]]:
        return matrix.rows("recipe-formats", "format")

    with told_as(UsageProblem, AssignmentError):
        configured = parse_assignments(sources.configured, matrix.registry, sources.configured_in, formats)
        return [*configured, *targets, *parse_assignments(sources.assignments, matrix.registry, formats=formats)]


def _understood(fact: Fact, matrix: Matrix) -> Fact:
    """Return the GPUs that were typed by the tables' names. Raises :class:`UsageProblem` for an unknown name, unless
    the compute capability was given too."""
    from envdoctor.matrix.gpu_code import counted, gpu_named, other_accelerator

    items: list[Mapping[str, Value]] = []
    origin = fact.origin
    option = origin if fact.origin == "--target-gpu" else f"{fact.origin} gpu.name"
    for item in fact.value if isinstance(fact.value, Records) else ():
        name, count = item.get("name"), 1
        if isinstance(name, str):
            count, name = counted(name) or (1, name)
            origin = f"{fact.origin} 1x{name}" if count == 1 else origin
        gpu = gpu_named(name, matrix) if isinstance(name, str) else None
        if name == "":
            raise UsageProblem("{}: a name is empty", option)
        if isinstance(name, str) and gpu is None and "cc" not in item:
            if kind := other_accelerator(name):
                text = "{} {}: only GPUs of NVIDIA are known by their names; give --set machine.accelerators={}"
                raise UsageProblem(Message(text, option, name, kind))
            cc = Message("give its compute capability too, e.g. --set gpu.cc=8.9")
            hint = did_you_mean(name, (row["key"] for row in matrix.rows("gpus")), cc)
            raise UsageProblem("{} {}: no GPU of that name is known; {}", option, name, hint)
        items += [{**item, "name": gpu.name} if gpu is not None else item] * max(count, 1)
    return fact._replace(value=Records(tuple(items)), origin=origin) if isinstance(fact.value, Records) else fact


def is_there(facts: FactSet, name: str) -> bool:
    """Return whether a fact is known and not empty; for a prefix (``model``), whether a fact below it is."""
    facts_below = [facts.get(name)] if name in facts or "." in name else facts.below(name + ".")
    return any(not isinstance(f.value, Unknown) and f.value not in (ABSENT, (), Records(())) for f in facts_below)


def target_facts(target: Mapping[str, str], registry: Registry) -> list[Fact]:
    """Return the facts of the options ``--target-NAME``, by NAME. Raises :class:`UsageProblem`."""
    facts: list[Fact] = []
    for name, text in target.items():
        for key, value in _target_values(name, str(text)).items():
            spec: Any = registry.find(key)
            try:
                facts.append(Fact(key, parse_value(spec, value), f"--target-{name}", "given"))
            except FactTypeError as error:
                raise UsageProblem("--target-{} {}: {}", name, text, error) from None
    return facts


def _target_values(name: str, text: str) -> Mapping[str, object]:
    """Return the values of one option ``--target-NAME``, by the keys of facts."""
    if name == "gpu":
        return {"gpu": None if text.lower() == "none" else [{"name": text}]}
    if name == "driver":
        return {"driver.version": text}
    if name == "python":
        match = re.match(_PYTHON, text)
        if match is None:
            raise UsageProblem("--target-python {}: a release of Python is expected, such as 3.11 or 3.11.9", text)
        whole = {"python.version": text} if match[2] else {}
        return {**whole, "python.minor": match[1], "python.implementation": "cpython"}
    if name != "platform":
        raise UsageProblem("a target has python, platform, gpu and driver, not {}", name)
    match = re.match(_PLATFORM, text)
    if match is None:
        raise UsageProblem(
            "--target-platform {}: system and processor are expected: linux-x86_64, linux-aarch64, "
            "windows-x86_64, macos-arm64",
            text,
        )
    system, machine = _SYSTEMS.get(match[1].lower(), match[1].lower()), match[2].lower()
    machine = "x86_64" if machine == "amd64" else "aarch64" if machine == "arm64" and system == "linux" else machine
    return {"os.platform": system, "os.arch": machine}


def _missing(files: Sequence[tuple[str, Origin, str]]) -> list[Notice]:
    text = "{} names {}, which {}: what it sets is not known"
    once = {name: (place, name, reason) for name, place, reason in reversed(files)}  # of several places the first
    return [Notice("warning", Message(text, *names)) for names in reversed(once.values())]


def _notices(facts: FactSet, recipe: "Recipe") -> list[Notice]:
    messages: dict[str, list[Message]] = {"unknown": [], "unusable": []}
    for item in facts.items("recipe_key"):
        state, key, other, place = str(item["state"]), item["key"], item["other"], item["place"]
        where = place[0] if isinstance(place, tuple) else place
        text = Message("{}: {} is not known; did you mean {}?", where, key, other)
        if state == "unusable":
            text = Message("{}: {} has no value that can be used: {}", where, key, other)
        elif other is ABSENT:
            text = Message("{}: {} is not known", where, key)
        messages.setdefault(state, []).append(text)
    notices = _missing(recipe.missing)
    for name, (line, *others) in recipe.runs:
        lines = ", ".join(map(str, others[:_MOST_NOTICES]))
        said_so = Message(
            "{} is the run that is judged; {} has others in line {}: --recipe {}:{} judges one",
            *(Origin(name, line), name, lines, name, others[0]),
        )
        notices.append(Notice("note", said_so))
    for texts in (messages["unknown"], messages["unusable"]):
        notices += [Notice("warning", text) for text in texts[:_MOST_NOTICES]]
        if len(texts) > _MOST_NOTICES:
            rest = len(texts) - _MOST_NOTICES
            more = Message("{} more like this: `envdoctor facts --format json` lists them in recipe_key", rest)
            notices.append(Notice("warning", more))
    return notices
