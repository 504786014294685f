"""Find what stops imports and classes, and the releases that would not: by the installed files, for other releases by
the ledger.

If the statements were really run (the probe imports), a link stands only if a statement that it stops failed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Absent, Records, Value
from envdoctor.judge.derivations import Answer, Derived, begun, derives
from envdoctor.matrix import lookup
from envdoctor.matrix.entry_statements import entries, named, parse_statement
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.lookup import missing
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.packages.link import needed, required
from envdoctor.source.signatures import spelled
from envdoctor.system.message import Message
from envdoctor.versions.releases import Releases
from envdoctor.versions.requirement import normalise

_COLUMNS = (
    *("consumer", "consumer_version", "provider", "provider_version", "kind", "name", "keyword", "place", "stops"),
    *("reach", "text", "need", "works", "package"),
)
_OF_CLASSES = ("keyword", "override")
_OF_IMPORTS = ("module", "name", "attribute", "argument")


_READS = (
    "link link_read import_run conflict dist pkg.* refused use beside code.files code_unread recipe.stage "
    "recipe.trainer recipe.kernels package_damage import_shadow untaken"
)


@derives("import_shadow", of="import_shadow link")
def _stopping_shadow(facts: View, matrix: Matrix) -> Answer:
    """Add to a module that hides an installed package the name that others take from the package and it lacks."""
    shadows = facts.records("import_shadow")
    if shadows is None:
        return None
    links: dict[Value, Mapping[str, Value]] = {}
    for link in facts.items("link"):
        if link["kind"] in _OF_IMPORTS:
            links.setdefault(link["provider"], link)
        elif link["kind"] == "demand":  # of the module in front: what is installed fits the hidden one
            links.setdefault(link["consumer"], link)
    items = []
    for item in shadows:
        need = links.get(item["package"]) if item["kind"] != "working-directory" else None
        items.append({**item, "lacks": need["name"], "asked_by": need["consumer"]} if need is not None else item)
    return Derived(Records(tuple(items), shadows.incomplete), Message("what packages take from each other"))


@derives("broken_link", of=_READS)
def _broken_link(facts: View, matrix: Matrix) -> Answer:
    """Give ``broken_link``: the items of ``link``, and what the ledger knows of packages whose files were not followed
    as they are now: packages of a facts file, and packages that are being changed."""
    links, followed = facts.records("link"), {str(item["package"]) for item in facts.items("link_read")}
    observed = Records(()) if links is None else links
    stack = {name: version for name in matrix.ledger.packages() if (version := facts.text(f"pkg.{name}")) is not None}
    if not stack and links is None:
        return None
    worked = {str(item["entry"]): item["outcome"] == "works" for item in facts.items("import_run")}
    candidates = (
        *(_completed(item, observed, matrix.ledger, stack) for item in observed),
        *_of_ledger(facts, stack, matrix.ledger, followed),
    )
    # What is used of classes that were not followed, and of a list, is not known.
    classes = tuple(_with_needs(tuple(_of_classes(facts, stack, matrix, followed)), facts, matrix, stack))
    if facts.records("refused") is not None:
        candidates = (*_with_needs(candidates, facts, matrix, stack), *classes)
    else:
        candidates = (*candidates, *({**link, "need": ABSENT, "works": ABSENT} for link in classes))
    #: The releases of a package that all allow, where another is installed, by who requires it and its name.
    declared = {
        (asker.partition(" ")[0], str(conflict.value("package"))): specifiers
        for conflict in facts.each("conflict")
        if (specifiers := conflict.text("wanted")) is not None
        for asker in conflict.words("required_by") or ()
    }
    #: Packages whose files differ from the released ones, with their releases.
    damaged = {
        str(row["package"]): str(row["version"]) for row in facts.items("package_damage") if row["fails"] is True
    } | {str(row["package"]): str(row["hidden_version"]) for row in facts.items("import_shadow") if "asked_by" in row}
    items = []
    is_used, (_, others) = _used(facts, matrix, _code(facts)), _stages(facts, matrix)
    for item in candidates:
        dotted = [name.rpartition(".") for name in str(item["stops"]).split(", ")] * (item["kind"] in _OF_CLASSES)
        # A recipe of one stage makes no trainer of another.
        if dotted and all(name.lower().startswith(others) and not is_used(base, name) for base, _, name in dotted):
            continue
        ran = [worked[statement] for statement in str(item["stops"]).split(", ") if statement in worked]
        if not ran or not all(ran):
            cells = {key: cell for key, cell in _with_declared(item, declared).items() if key != "fail"}
            items.append({**cells, "package": _not_whole(item, damaged, matrix.ledger)})
    return Derived(Records(tuple(items), observed.incomplete), Message("what packages take from each other"))


def _with_needs(
    links: Sequence[Mapping[str, Value]], facts: View, matrix: Matrix, stack: Mapping[str, str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the links with ``need`` and ``works``: whether the known code of a list takes what the link stops. A link
    is left out if given code was read whole, and takes only other parts of the package.

    Code takes what a given script, the recipe, or a file beside the list takes without a guard. Code that is not known
    may take all but the choices of the table entry-statements. Code that takes another module of the package imports
    this part only if that module does, which is not known.
    """
    if not links:
        return
    code, closure = _code(facts), _stack(facts, matrix)
    is_used, unused = _used(facts, matrix, code), facts.words("untaken") or ()
    taken = {f"{use.get('module')}.{use.get('name')}" for use in _sure(code)} if _is_whole(facts) else set()
    loaded = {name[: dot.start()] for name in taken for dot in re.finditer(r"\.|\Z", name)}
    kernels = facts.words("recipe.kernels")
    listed = [*entries(matrix.rows, stack)]
    failing = {entry for link in links for entry in View.of(link).words("fail") or ()}
    for link in links:
        package, statements = str(link["consumer"]), View.of(link).words("fail") or ()
        choice = all(statement in named(matrix.rows, package, "choice") for statement in statements)
        imports = [parse_statement(statement) for statement in statements]
        needed_here = any(is_used(module, name) for module, name in imports)
        if needed_here:
            need = ""
        elif all(name for _, name in imports):
            need = "part" * choice
        else:
            none = all(statement in unused for statement in statements)
            need = "package" * (none or (package not in closure and (choice or bool(code))))
        if any(module.partition(".")[0] in loaded for module, _ in imports):
            if need:
                continue
            is_elsewhere = loaded.isdisjoint(module for module, _ in imports)
            need = "part" * (is_elsewhere and not needed_here and not kernels)
        own = (entry.statement for entry in listed if entry.package == package)
        works = [statement for statement in own if statement not in failing]
        seldom = {"reach": "sometimes"} if need and link["kind"] in _OF_CLASSES else {}
        columns = {"need": need or ABSENT, "works": begun(works) if need == "part" and works else ABSENT}
        yield {**link, **seldom, **columns}


def _code(facts: View) -> list[Mapping[str, Value]]:
    """Return the uses of code that was given, or that lies beside a list."""
    return [use for key in ("use", "beside") for use in facts.items(key)]


def _is_whole(facts: View) -> bool:
    """Return whether code was given, and all of it was read."""
    return bool(facts.words("code.files")) and facts.value("code_unread") == Records(())


def _sure(code: Iterable[Mapping[str, Value]]) -> list[Mapping[str, Value]]:
    return [use for use in code if not use.get("guarded") and use.get("reach") != "unused"]


def _tops(code: Iterable[Mapping[str, Value]]) -> set[str]:
    return {str(use.get("module")).partition(".")[0] for use in _sure(code)}


def _stack(facts: View, matrix: Matrix) -> set[str]:
    """Return the training stack, and what it requires."""
    return {*needed({str(item["name"]): item for item in facts.items("dist")}, matrix.registry.first("pkg"))}


def _stages(facts: View, matrix: Matrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words for the stage of the recipe, and the words for all others; none where it is not known. All are
    others for a framework with its own trainers: its classes may take arguments that their base classes refuse."""
    stage, spec = facts.text("recipe.stage"), matrix.registry.find("recipe.stage")
    if stage is None or spec is None:
        return (), ()
    words = {**dict(zip(spec.values, spec.values, strict=True)), **spec.spellings, stage: stage}
    foreign = facts.text("recipe.trainer") not in (None, "trl")
    own = () if foreign else tuple(word for word, meaning in words.items() if meaning == stage)
    return own, tuple(words.keys() - own)


def _used(facts: View, matrix: Matrix, code: Iterable[Mapping[str, Value]]) -> Callable[[str, str | None], bool]:
    """Return a function that tells whether the code, or the stage of the recipe, takes a module, or a name of it."""
    stages, _ = _stages(facts, matrix)
    uses = [(str(use.get("module")), str(use.get("name")).partition(".")[0]) for use in _sure(code)]

    def is_used(module: str, name: str | None) -> bool:
        if name is not None and name.lower().startswith(stages):
            return True
        top = module.partition(".")[0]
        return any(
            of.partition(".")[0] == top and (name is None or part == "*" or part.endswith(name)) for of, part in uses
        )

    return is_used


@derives(
    "untaken",
    of="use beside model_use code.files code_unread dist pkg.* environment.brought recipe.stage recipe.framework "
    "recipe.trainer",
)
def _untaken(facts: View, matrix: Matrix) -> Answer:
    """Give the statements of the table entry-statements that no known code takes: code that was read whole, or any code
    where a list only brings the package along; nor a package that such code may import."""
    code, brought = [*_code(facts), *facts.items("model_use")], facts.words("environment.brought") or ()
    whole = _is_whole(facts)
    if not whole and not brought:
        return Derived((), Message("the code and the ledger of releases"))
    is_used, dists = _used(facts, matrix, code), {str(item["name"]): item for item in facts.items("dist")}
    stack = {name: version for name in matrix.ledger.packages() if (version := facts.text(f"pkg.{name}")) is not None}
    # What may import more: packages of the code, where it is known, else what the list names.
    of_code = {matrix.ledger.owner(top) or normalise(top) for top in _tops(code)}
    roots = of_code if whole else {*dists, *stack} - {*brought}
    reach = {framework} if (framework := facts.text("recipe.framework")) else set()
    queue = [*roots, *reach]
    for name in queue:  # it grows
        released = matrix.ledger.package(name)
        is_read = released is not None and released.by_names and name in stack
        tops = {take.module.partition(".")[0] for take in lookup.taken(released, stack[name])} if is_read else set()
        for other in required(dists[name]) if name in dists else ():
            is_idle = is_read and other not in matrix.registry.first("pkg") and matrix.ledger.package(other) is not None
            if other not in reach and not (is_idle and other not in map(matrix.ledger.owner, tops)):
                reach.add(other)
                queue.append(other)
    known_entries = [entry for entry in entries(matrix.rows, stack) if whole or entry.package in brought]
    idle = [entry for entry in known_entries if entry.package not in reach and not is_used(entry.module, entry.name)]
    statements = {entry.statement for entry in idle}
    rows = [row for row in matrix.rows("entry-statements") if not statements.issuperset(row["statements"])]
    deps = {name for row in rows for name in row.get("imports", ()) if row["name"] in stack}
    return Derived(
        tuple(row.statement for row in idle if row.package not in deps), Message("the code and the ledger of releases")
    )


def _not_whole(link: Mapping[str, Value], damaged: Mapping[str, str], ledger: Ledger) -> str | Absent:
    """Return the party whose own files were damaged, or hidden; absent where the two do not go together even as
    released."""
    consumer, provider = str(link["consumer"]), str(link["provider"])
    taker, giver = ledger.package(consumer), ledger.package(provider)
    if consumer != provider and not damaged.keys().isdisjoint((consumer, provider)) and taker and giver:
        release = damaged.get(consumer, str(link["consumer_version"]))
        if taker.by_names and giver.by_names:
            whole = damaged.get(provider, str(link["provider_version"]))
            fit = lookup.fitting_providers(ledger, taker, release, giver).has(whole)
            damaged = damaged if fit is not False else {}
    return next((name for name in (provider, consumer) if name in damaged), ABSENT)


def _with_declared(link: Mapping[str, Value], declared: Mapping[tuple[str, str], str]) -> Mapping[str, Value]:
    """Return the link, with the releases by metadata where nothing else says which would go: those of the provider that
    the consumer requires, those of the consumer that others require."""
    if link["kind"] in _OF_CLASSES:
        return link
    consumer, provider = str(link["consumer"]), str(link["provider"])
    of_others = next((specifiers for (_, package), specifiers in declared.items() if package == consumer), ABSENT)
    missing = link["provider_version"] is ABSENT and link["kind"] != "raise"
    of_it = declared.get((consumer, provider), provider if missing else ABSENT)
    constraints = {"constraint": of_it, "consumer_constraint": of_others}
    return {**link, **{column: cell for column, cell in constraints.items() if link[column] is ABSENT}}


def _completed(
    link: Mapping[str, Value], links: Records, ledger: Ledger, stack: Mapping[str, str]
) -> Mapping[str, Value]:
    provider, specifiers = str(link["provider"]), link.get("wanted")
    cells: dict[str, Value] = {**{column: link.get(column, ABSENT) for column in _COLUMNS}, **_NO_CONSTRAINTS}
    if link["kind"] in (*_OF_CLASSES, "argument"):
        cells["constraint"] = _releases_with(link, links, ledger, stack)
        if link["kind"] == "override":
            cells["text"] = spelled(str(link["name"]), str(link["text"]))
    elif isinstance(specifiers, str):
        cells["constraint"] = provider + specifiers
    elif isinstance(link["provider_version"], str):
        of_it = [other for other in links if other["consumer"] == link["consumer"] and other["kind"] in _OF_IMPORTS]
        texts = {str(other["provider"]): View.of(other).text("provider_version") for other in of_it}
        others = {name: version for name, version in texts.items() if version is not None}
        cells |= _constraints(ledger, link, others)
        if cells["constraint"] is ABSENT and link["kind"] in _OF_IMPORTS:
            cells["constraint"] = _releases_with(link, links, ledger, stack)
    return cells


def _releases_with(link: Mapping[str, Value], links: Records, ledger: Ledger, stack: Mapping[str, str]) -> str | Absent:
    """Return the releases of the provider that have the symbol and, if any do, all else that the consumer's imports, or
    its classes, take from it."""
    provider, version = ledger.package(str(link["provider"])), link["provider_version"]
    if provider is None or not provider.by_names or not isinstance(version, str):
        return ABSENT
    both = [other for other in links if all(other[column] == link[column] for column in ("consumer", "provider"))]
    kinds = _OF_CLASSES if link["kind"] in _OF_CLASSES else _OF_IMPORTS
    parts = dict.fromkeys(_symbol_of(other) for other in both if other["kind"] in kinds)
    having = {part: lookup.where(ledger, provider, part, stack.get) for part in (_symbol_of(link), *parts)}
    own = having[_symbol_of(link)]
    if not own.yes:
        return ABSENT
    whole = reduce(and_, [releases for releases in having.values() if releases.yes])
    return provider.name + (whole if whole.yes else own).nearest(version).excluding(version)


def _symbol_of(link: Mapping[str, Value]) -> lookup.Symbol:
    """Return the symbol that a link takes from the provider."""
    module = str(link["module"])
    return lookup.Symbol.of(
        module, str(link["name"]).removeprefix(f"{module}."), link.get("keyword"), link.get("parameters")
    )


def _of_ledger(
    facts: View, stack: Mapping[str, str], ledger: Ledger, followed: set[str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the gaps between releases if one was not followed: each gap that stops another statement."""
    others = (ledger.package(name) for name in stack if name not in followed)
    if not any(other is not None and other.by_names for other in others):
        return  # the rest is read for nothing: it was all followed

    dists = facts.items("dist")
    declaring = {str(record.value("name")) for record in facts.each("dist") if record.words("requires") is not None}
    for name, version in stack.items():
        consumer = ledger.package(name)
        if consumer is None or not consumer.by_names:
            continue
        gaps: dict[tuple[str, str], list[lookup.TakenNames]] = {}
        unread = followed if name in followed else ()
        for take, provider in missing(ledger, consumer, version, lambda package: facts.value(f"pkg.{package}"), unread):
            if (take.need and name in declaring) or (dists and facts.absent(f"pkg.{provider}")):
                continue  # metadata says what is required, and an installer adds it
            demand = take.need and take.need.name + take.need.specifiers
            gaps.setdefault((provider, demand or ".".join(filter(None, (take.module, take.name)))), []).append(take)
        stopped: set[tuple[str, str]] = set()
        for (provider, label), takes in sorted(gaps.items(), key=_most):
            entries = {take.entry for take in takes}
            # ``import peft`` stops ``from peft import LoraConfig`` too.
            whole = {entry: entry.partition(" import ")[0].replace("from ", "import ", 1) for entry in entries}
            if all((provider, entry) in stopped or (provider, whole[entry]) in stopped for entry in entries):
                continue
            stopped |= {(provider, entry) for entry in entries}
            requirement = takes[0].need
            link: dict[str, Value] = {
                "consumer": name,
                "consumer_version": version,
                "provider": provider,
                "provider_version": facts.value(f"pkg.{provider}"),
                "kind": "demand" if requirement else "name" if takes[0].name else "module",
                "name": label,
                "place": takes[0].place,
                "stops": begun([*dict.fromkeys(take.entry for take in takes)]),
                **dict.fromkeys(("text", "keyword", "reach", "need", "works", "package"), ABSENT),
                "fail": tuple(dict.fromkeys(take.entry for take in takes)),
            }
            lacking = {package: stack[package] for package, _ in gaps if package in stack}
            constraints = _constraints(ledger, link, lacking) if provider in stack else _NO_CONSTRAINTS
            yield {**link, **constraints, **({"constraint": label} if requirement else {})}


def _of_classes(
    facts: View, stack: Mapping[str, str], matrix: Matrix, followed: set[str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the methods between releases that cannot take the calls of base classes if one was not followed: each that
    a package replaces, with all its classes that do."""
    ledger = matrix.ledger
    methods: dict[tuple[Released, Released, str], tuple[lookup.Outdated, list[str], list[str]]] = {}
    for entry in entries(matrix.rows, stack):
        package = ledger.package(entry.package) if entry.derives and entry.name is not None else None
        if package is None:
            continue
        version, dotted = stack[entry.package], f"{entry.module}.{entry.name}"
        for other in lookup.inherited_from(
            ledger, package, lookup.Symbol(entry.module, str(entry.name)), version, stack.get
        ):
            if not {package.name, other.name} <= followed:
                options = {"provider": other, "its_version": stack[other.name]}
                for method in lookup.outdated(ledger, package, version, dotted, **options) or ():
                    key = package, other, f"{method.base.replace(':', '.')}.{method.method}"
                    _, classes, statements = methods.setdefault(key, (method, [], []))
                    classes.append(dotted)
                    statements.append(entry.statement)
    for (package, other, name), (method, classes, statements) in methods.items():
        release, its_release = stack[package.name], stack[other.name]

        fits = partial(_take_calls, ledger, (package, other), tuple(classes))
        providers = Releases.of(other.read, [fits(release, version) for version in other.read])
        consumers = Releases.of(package.read, [fits(version, its_release) for version in package.read])
        yield {
            "consumer": package.name,
            "consumer_version": release,
            "provider": other.name,
            "provider_version": its_release,
            "kind": "override",
            "name": name,
            "place": method.place.partition(":")[0],
            "stops": begun([*dict.fromkeys(classes)]),
            "text": spelled(name, method.call),
            "reach": "always" if method.method in named(matrix.rows, package.name, "every_run") else "sometimes",
            **dict.fromkeys(("keyword", "need", "works", "package"), ABSENT),
            "fail": tuple(dict.fromkeys(statements)),
            **_going_together(
                (package, other),
                (release, its_release),
                consumers & lookup.fitting_consumers(ledger, package, other, its_release),
                providers & lookup.fitting_providers(ledger, package, release, other),
            ),
        }


def _take_calls(
    ledger: Ledger, packages: tuple[Released, Released], classes: Sequence[str], version: str, its_version: str
) -> bool | None:
    """Return whether all classes of a version of the first package take the calls of a version of the second."""
    options = {"provider": packages[1], "its_version": its_version}
    answers = [lookup.outdated(ledger, packages[0], version, name, **options) for name in classes]
    return False if any(answers) else None if None in answers else True


def _most(gap: tuple[tuple[str, str], list[lookup.TakenNames]]) -> tuple[bool, bool, int, str]:
    """Sort required versions first, then what stops the whole package, then what stops most."""
    (_, name), takes = gap
    return not takes[0].need, all(take.entry.startswith("from ") for take in takes), -len(takes), name


_NO_CONSTRAINTS: Mapping[str, Value] = {"constraint": ABSENT, "consumer_constraint": ABSENT}


def _constraints(ledger: Ledger, link: Mapping[str, Value], lacking: Mapping[str, str]) -> Mapping[str, Value]:
    """Return the releases of either package that would go with the other as it is. Those of the consumer go with every
    package in ``lacking`` (with its version) as well: it lacks what the consumer takes."""
    consumer, provider = ledger.package(str(link["consumer"])), ledger.package(str(link["provider"]))
    versions = str(link["consumer_version"]), str(link["provider_version"])
    if consumer is None or provider is None or consumer is provider or not (consumer.by_names and provider.by_names):
        return _NO_CONSTRAINTS
    others = ((ledger.package(name), version) for name, version in lacking.items())
    releases = {provider: versions[1], **{other: its for other, its in others if other is not None and other.by_names}}
    fitting = (
        reduce(and_, (lookup.fitting_consumers(ledger, consumer, other, its) for other, its in releases.items())),
        lookup.fitting_providers(ledger, consumer, versions[0], provider),
    )
    return _going_together((consumer, provider), versions, *fitting)


def _going_together(
    packages: tuple[Released, Released], versions: tuple[str, str], consumers: Releases, providers: Releases
) -> Mapping[str, Value]:
    """Return the nearest releases of either, those of the consumer only if it has to be another one."""
    consumer, provider = packages
    nearest = providers.nearest(versions[1]).specifier
    others = consumers.nearest(versions[0]).specifier if consumers.has(versions[0]) is False else None
    return {
        "constraint": provider.name + nearest if nearest else ABSENT,
        "consumer_constraint": consumer.name + others if others else ABSENT,
    }
