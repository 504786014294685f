"""What stops imports and classes, with the releases that would not: by the installed files, for other releases by the
ledger.

Where the statements were really run (the probe imports), a link stands only if one of those that it stops failed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import and_

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Absent, Records, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix.entry_statements import entries, named, parse_statement
from envdoctor.matrix.ledger import Ledger, Released
from envdoctor.matrix.lookup import (
    Asked,
    Outdated,
    TakenNames,
    fitting_consumers,
    fitting_providers,
    inherited_from,
    missing,
    outdated,
    taken,
    where,
)
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
_SHOWN = 3
_OF_CLASSES = ("keyword", "override")
#: Frameworks whose recipes make trl's own trainers, and a recipe of none.
_WITH_CLASSES_OF_TRL = (None, "trl", "transformers", "accelerate", "unsloth")
_OF_IMPORTS = ("module", "name", "attribute", "argument")


_READS = (
    "link link_read import_run conflict dist pkg.* refused use beside code.files code_unread recipe.stage "
    "recipe.framework package_damage import_shadow untaken"
)


@derives("import_shadow", of="import_shadow link")
def stopping_shadow(facts: View, matrix: Matrix) -> Answer:
    """Add to what hides an installed package what others take from it and the one in front does not have."""
    shadows = facts.records("import_shadow")
    if shadows is None:
        return None
    taken: dict[Value, Mapping[str, Value]] = {}
    for link in facts.items("link"):
        if link["kind"] in _OF_IMPORTS:
            taken.setdefault(link["provider"], link)
    items = []
    for item in shadows:
        asked = taken.get(item["package"]) if item["kind"] != "working-directory" else None
        items.append({**item, "lacks": asked["name"], "asked_by": asked["consumer"]} if asked is not None else item)
    return Derived(Records(tuple(items), shadows.incomplete), Message("what packages take from each other"))


@derives("broken_link", of=_READS)
def broken_link(facts: View, matrix: Matrix) -> Answer:
    """``broken_link``: the items of ``link``, and what the ledger knows of packages whose files were not followed as
    they are now: those of a facts file, and those that are being changed."""
    links, followed = facts.records("link"), {str(item["package"]) for item in facts.items("link_read")}
    observed = Records(()) if links is None else links
    there = {name: version for name in matrix.ledger.packages() if (version := facts.text(f"pkg.{name}")) is not None}
    if not there and links is None:
        return None
    worked = {str(item["entry"]): item["outcome"] == "works" for item in facts.items("import_run")}
    found = (
        *(_completed(item, observed, matrix.ledger, there) for item in observed),
        *_of_ledger(facts, there, matrix.ledger, followed),
    )
    # Of classes that were not followed, and of a list, nobody says what is used.
    classes = tuple(_with_needs(tuple(_of_classes(facts, there, matrix, followed)), facts, matrix, there))
    if facts.records("refused") is not None:
        found = (*_with_needs(found, facts, matrix, there), *classes)
    else:
        found = (*found, *({**link, "need": ABSENT, "works": ABSENT} for link in classes))
    #: The releases of a package that everybody allows, where another is installed, by who requires it and its name.
    declared = {
        (asker.partition(" ")[0], str(conflict.value("package"))): wanted
        for conflict in facts.each("conflict")
        if (wanted := conflict.text("wanted")) is not None
        for asker in conflict.words("required_by") or ()
    }
    #: Packages whose own files are not those that they were released with, and the releases that they were of.
    damaged = {
        str(one["package"]): str(one["version"]) for one in facts.items("package_damage") if one["fails"] is True
    } | {str(one["package"]): str(one["hidden_version"]) for one in facts.items("import_shadow") if "asked_by" in one}
    items = []
    is_used, (_, others) = _used(facts, matrix, _code(facts)), _stages(facts, matrix)
    for item in found:
        classes_of = [one.rpartition(".") for one in str(item["stops"]).split(", ")] * (item["kind"] in _OF_CLASSES)
        # A recipe of one stage makes no trainer of another.
        if classes_of and all(one.lower().startswith(others) and not is_used(of, one) for of, _, one in classes_of):
            continue
        ran = [worked[statement] for statement in str(item["stops"]).split(", ") if statement in worked]
        if not ran or not all(ran):
            cells = {key: cell for key, cell in _with_declared(item, declared).items() if key != "fail"}
            items.append({**cells, "package": _not_whole(item, damaged, matrix.ledger)})
    return Derived(Records(tuple(items), observed.incomplete), Message("what packages take from each other"))


def _with_needs(
    links: Sequence[Mapping[str, Value]], facts: View, matrix: Matrix, there: Mapping[str, str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the links with ``need`` and ``works``: whether what is known of a list's code takes what an import of a
    listed package stops. Left out is a part of a package that was given code takes other parts of, and was read whole.

    Taken is what a script that was given, the recipe, or a file beside the list takes without a guard. Where no code is
    known, it may take all but the choices of the table entry-statements.
    """
    if not links:
        return
    code, stack = _code(facts), _stack(facts, matrix)
    is_used, unused = _used(facts, matrix, code), facts.words("untaken") or ()
    tops = _tops(code) if _is_whole(facts) else set()
    known = [*entries(matrix.rows, there)]
    failing = {entry for link in links for entry in View.of(link).words("fail") or ()}
    for link in links:
        package, statements = str(link["consumer"]), View.of(link).words("fail") or ()
        choice = all(one in named(matrix.rows, package, "choice") for one in statements)
        asked = [parse_statement(one) for one in statements]
        if any(is_used(module, name) for module, name in asked):
            need = ""
        elif all(name for _, name in asked):
            need = "part" * choice
        else:
            none = all(one in unused for one in statements)
            need = "package" * (none or (package not in stack and (choice or bool(code))))
        if need and any(module.partition(".")[0] in tops for module, _ in asked):
            continue
        own = (one.statement for one in known if one.package == package)
        works = [one for one in own if one not in failing]
        seldom = {"reach": "sometimes"} if need and link["kind"] in _OF_CLASSES else {}
        told = {"need": need or ABSENT, "works": _listed(works) if need == "part" and works else ABSENT}
        yield {**link, **seldom, **told}


def _code(facts: View) -> list[Mapping[str, Value]]:
    """Return what code that was given, or lies beside a list, takes."""
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
    return {*needed({str(one["name"]): one for one in facts.items("dist")}, matrix.registry.first("pkg"))}


def _stages(facts: View, matrix: Matrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words for the stage of the recipe, and those for all others; no words where it is not known. To a
    framework with trainers of its own all are others: its classes may take what those that they derive from refuse."""
    stage, spec = facts.text("recipe.stage"), matrix.registry.find("recipe.stage")
    if stage is None or spec is None:
        return (), ()
    words = {**dict(zip(spec.values, spec.values, strict=True)), **spec.spellings, stage: stage}
    foreign = facts.text("recipe.framework") not in _WITH_CLASSES_OF_TRL
    own = () if foreign else tuple(word for word, meant in words.items() if meant == stage)
    return own, tuple(words.keys() - own)


def _used(facts: View, matrix: Matrix, code: Iterable[Mapping[str, Value]]) -> Callable[[str, str | None], bool]:
    """Return what tells whether the code, or the stage of the recipe, takes a module, or a name of it."""
    stages, _ = _stages(facts, matrix)
    uses = [(str(use.get("module")), str(use.get("name")).partition(".")[0]) for use in _sure(code)]

    def is_used(module: str, name: str | None) -> bool:
        if name is not None and name.lower().startswith(stages):
            return True
        top = module.partition(".")[0]
        return any(
            of.partition(".")[0] == top and (name is None or taken == "*" or taken.endswith(name)) for of, taken in uses
        )

    return is_used


@derives(
    "untaken",
    of="use beside model_use code.files code_unread dist pkg.* environment.brought recipe.stage recipe.framework",
)
def untaken(facts: View, matrix: Matrix) -> Answer:
    """Give the statements of the table entry-statements that nothing known takes: the code that was read whole, or any
    where a list only brings the package along; and no package of the ones that these may take."""
    code, brought = [*_code(facts), *facts.items("model_use")], facts.words("environment.brought") or ()
    whole = _is_whole(facts)
    if not whole and not brought:
        return Derived((), Message("the code and the ledger of releases"))
    is_used, dists = _used(facts, matrix, code), {str(one["name"]): one for one in facts.items("dist")}
    there = {name: one for name in matrix.ledger.packages() if (one := facts.text(f"pkg.{name}")) is not None}
    # What may import more: packages of the code, where it is known, else what the list names.
    of_code = {matrix.ledger.owner(top) or normalise(top) for top in _tops(code)}
    roots = of_code if whole else {*dists, *there} - {*brought}
    seen = {framework} if (framework := facts.text("recipe.framework")) else set()
    asking = [*roots, *seen]
    for name in asking:  # it grows
        released = matrix.ledger.package(name)
        known = released is not None and released.by_names and name in there
        its = {one.module.partition(".")[0] for one in taken(released, there[name])} if known else set()
        for other in required(dists[name]) if name in dists else ():
            is_idle = known and other not in matrix.registry.first("pkg") and matrix.ledger.package(other) is not None
            if other not in seen and not (is_idle and other not in map(matrix.ledger.owner, its)):
                seen.add(other)
                asking.append(other)
    known_entries = [one for one in entries(matrix.rows, there) if whole or one.package in brought]
    idle = [one for one in known_entries if one.package not in seen and not is_used(one.module, one.name)]
    told = {one.statement for one in idle}
    taking = [row for row in matrix.rows("entry-statements") if not told.issuperset(row["statements"])]
    also = {name for row in taking for name in row.get("imports", ()) if row["name"] in there}
    return Derived(
        tuple(one.statement for one in idle if one.package not in also), Message("the code and the ledger of releases")
    )


def _not_whole(link: Mapping[str, Value], damaged: Mapping[str, str], ledger: Ledger) -> str | Absent:
    """Return the party whose own files were damaged, or hidden; none where the two do not go together as they were
    released."""
    consumer, provider = str(link["consumer"]), str(link["provider"])
    asking, asked = ledger.package(consumer), ledger.package(provider)
    if consumer != provider and not damaged.keys().isdisjoint((consumer, provider)) and asking and asked:
        release = damaged.get(consumer, str(link["consumer_version"]))
        if asking.by_names and asked.by_names:
            whole = damaged.get(provider, str(link["provider_version"]))
            fit = fitting_providers(ledger, asking, release, asked).has(whole)
            damaged = damaged if fit is not False else {}
    return next((one for one in (provider, consumer) if one in damaged), ABSENT)


def _with_declared(link: Mapping[str, Value], declared: Mapping[tuple[str, str], str]) -> Mapping[str, Value]:
    """Return the link, with what metadata asks of the two packages where nothing else says which releases would go:
    the consumer of the provider, others of the consumer."""
    if link["kind"] in _OF_CLASSES:
        return link
    consumer, provider = str(link["consumer"]), str(link["provider"])
    of_others = next((wanted for (_, package), wanted in declared.items() if package == consumer), ABSENT)
    missing = link["provider_version"] is ABSENT and link["kind"] != "raise"
    of_it = declared.get((consumer, provider), provider if missing else ABSENT)
    found = {"constraint": of_it, "consumer_constraint": of_others}
    return {**link, **{column: said for column, said in found.items() if link[column] is ABSENT}}


def _completed(
    link: Mapping[str, Value], links: Records, ledger: Ledger, there: Mapping[str, str]
) -> Mapping[str, Value]:
    provider, wanted = str(link["provider"]), link.get("wanted")
    found: dict[str, Value] = {**{column: link.get(column, ABSENT) for column in _COLUMNS}, **_NO_CONSTRAINTS}
    if link["kind"] in (*_OF_CLASSES, "argument"):
        found["constraint"] = _releases_with(link, links, ledger, there)
        if link["kind"] == "override":
            found["text"] = spelled(str(link["name"]), str(link["text"]))
    elif isinstance(wanted, str):
        found["constraint"] = provider + wanted
    elif isinstance(link["provider_version"], str):
        of_it = [one for one in links if one["consumer"] == link["consumer"] and one["kind"] in _OF_IMPORTS]
        told = {str(one["provider"]): View.of(one).text("provider_version") for one in of_it}
        asked = {name: version for name, version in told.items() if version is not None}
        found |= _constraints(ledger, link, asked)
        if found["constraint"] is ABSENT and link["kind"] in _OF_IMPORTS:
            found["constraint"] = _releases_with(link, links, ledger, there)
    return found


def _releases_with(link: Mapping[str, Value], links: Records, ledger: Ledger, there: Mapping[str, str]) -> str | Absent:
    """Return the releases of the provider that have what is asked for and, if any do, what else the consumer's imports
    ask of it, or its classes."""
    provider, version = ledger.package(str(link["provider"])), link["provider_version"]
    if provider is None or not provider.by_names or not isinstance(version, str):
        return ABSENT
    both = [one for one in links if all(one[column] == link[column] for column in ("consumer", "provider"))]
    kinds = _OF_CLASSES if link["kind"] in _OF_CLASSES else _OF_IMPORTS
    asked = dict.fromkeys(_asked(one) for one in both if one["kind"] in kinds)
    having = {one: where(ledger, provider, one, there.get) for one in (_asked(link), *asked)}
    own = having[_asked(link)]
    if not own.yes:
        return ABSENT
    whole = reduce(and_, [one for one in having.values() if one.yes])
    return provider.name + (whole if whole.yes else own).nearest(version).excluding(version)


def _asked(link: Mapping[str, Value]) -> Asked:
    """Return what a class asks of the provider, as the ledger is asked."""
    module = str(link["module"])
    return Asked.of(module, str(link["name"]).removeprefix(f"{module}."), link.get("keyword"), link.get("parameters"))


def _of_ledger(
    facts: View, there: Mapping[str, str], ledger: Ledger, followed: set[str]
) -> Iterator[Mapping[str, Value]]:
    """Yield what is missing between releases if one was not followed: each thing that stops another statement."""
    others = (ledger.package(name) for name in there if name not in followed)
    if not any(other is not None and other.by_names for other in others):
        return  # the rest is read for nothing: it was all followed

    known = facts.items("dist")
    declaring = {str(one.value("name")) for one in facts.each("dist") if one.words("requires") is not None}
    for name, version in there.items():
        consumer = ledger.package(name)
        if consumer is None or not consumer.by_names:
            continue
        found: dict[tuple[str, str], list[TakenNames]] = {}
        seen = followed if name in followed else ()
        for take, provider in missing(ledger, consumer, version, lambda one: facts.value(f"pkg.{one}"), seen):
            if (take.wanted and name in declaring) or (known and facts.absent(f"pkg.{provider}")):
                continue  # metadata says what is required, and an installer adds it
            demand = take.wanted and take.wanted.name + take.wanted.specifiers
            found.setdefault((provider, demand or ".".join(filter(None, (take.module, take.name)))), []).append(take)
        stopped: set[tuple[str, str]] = set()
        for (provider, what), takes in sorted(found.items(), key=_most):
            entries = {take.entry for take in takes}
            # ``import peft`` stops ``from peft import LoraConfig`` too.
            whole = {one: one.partition(" import ")[0].replace("from ", "import ", 1) for one in entries}
            if all((provider, one) in stopped or (provider, whole[one]) in stopped for one in entries):
                continue
            stopped |= {(provider, entry) for entry in entries}
            wanted = takes[0].wanted
            link: dict[str, Value] = {
                "consumer": name,
                "consumer_version": version,
                "provider": provider,
                "provider_version": facts.value(f"pkg.{provider}"),
                "kind": "demand" if wanted else "name" if takes[0].name else "module",
                "name": what,
                "place": takes[0].place,
                "stops": _listed([take.entry for take in takes]),
                **dict.fromkeys(("text", "keyword", "reach", "need", "works", "package"), ABSENT),
                "fail": tuple(dict.fromkeys(take.entry for take in takes)),
            }
            lacking = {one: there[one] for one, _ in found if one in there}
            found_for = _constraints(ledger, link, lacking) if provider in there else _NO_CONSTRAINTS
            yield {**link, **found_for, **({"constraint": what} if wanted else {})}


def _of_classes(
    facts: View, there: Mapping[str, str], matrix: Matrix, followed: set[str]
) -> Iterator[Mapping[str, Value]]:
    """Yield the methods between releases that cannot take the calls of base classes if one was not followed: each that
    a package replaces, with all its classes that do."""
    ledger = matrix.ledger
    found: dict[tuple[Released, Released, str], tuple[Outdated, list[str], list[str]]] = {}
    for entry in entries(matrix.rows, there):
        package = ledger.package(entry.package) if entry.derives and entry.name is not None else None
        if package is None:
            continue
        version, dotted = there[entry.package], f"{entry.module}.{entry.name}"
        for other in inherited_from(ledger, package, Asked(entry.module, str(entry.name)), version, there.get):
            if not {package.name, other.name} <= followed:
                its = {"provider": other, "its_version": there[other.name]}
                for one in outdated(ledger, package, version, dotted, **its) or ():
                    key = package, other, f"{one.base.replace(':', '.')}.{one.method}"
                    _, classes, statements = found.setdefault(key, (one, [], []))
                    classes.append(dotted)
                    statements.append(entry.statement)
    for (package, other, name), (one, classes, statements) in found.items():
        asking, asked = there[package.name], there[other.name]

        fits = partial(_take_calls, ledger, (package, other), tuple(classes))
        providers = Releases.of(other.read, [fits(asking, each) for each in other.read])
        consumers = Releases.of(package.read, [fits(each, asked) for each in package.read])
        yield {
            "consumer": package.name,
            "consumer_version": asking,
            "provider": other.name,
            "provider_version": asked,
            "kind": "override",
            "name": name,
            "place": one.place.partition(":")[0],
            "stops": _listed(classes),
            "text": spelled(name, one.call),
            "reach": "always" if one.method in named(matrix.rows, package.name, "every_run") else "sometimes",
            **dict.fromkeys(("keyword", "need", "works", "package"), ABSENT),
            "fail": tuple(dict.fromkeys(statements)),
            **_going_together(
                (package, other),
                (asking, asked),
                consumers & fitting_consumers(ledger, package, other, asked),
                providers & fitting_providers(ledger, package, asking, other),
            ),
        }


def _take_calls(
    ledger: Ledger, packages: tuple[Released, Released], classes: Sequence[str], version: str, its_version: str
) -> bool | None:
    """Return whether all classes of a version of the first package take the calls of a version of the second."""
    its = {"provider": packages[1], "its_version": its_version}
    answers = [outdated(ledger, packages[0], version, each, **its) for each in classes]
    return False if any(answers) else None if None in answers else True


def _most(found: tuple[tuple[str, str], list[TakenNames]]) -> tuple[bool, bool, int, str]:
    """Sort versions that are asked for first, then what stops the whole package, then what stops most."""
    (_, what), takes = found
    return not takes[0].wanted, all(take.entry.startswith("from ") for take in takes), -len(takes), what


_NO_CONSTRAINTS: Mapping[str, Value] = {"constraint": ABSENT, "consumer_constraint": ABSENT}


def _constraints(ledger: Ledger, link: Mapping[str, Value], lacking: Mapping[str, str]) -> Mapping[str, Value]:
    """Return the releases of either package that would go with the other as it is; those of the consumer with every one
    of the packages, by their versions, that lack what it takes."""
    consumer, provider = ledger.package(str(link["consumer"])), ledger.package(str(link["provider"]))
    versions = str(link["consumer_version"]), str(link["provider_version"])
    if consumer is None or provider is None or consumer is provider or not (consumer.by_names and provider.by_names):
        return _NO_CONSTRAINTS
    others = ((ledger.package(name), version) for name, version in lacking.items())
    asked = {provider: versions[1], **{one: its for one, its in others if one is not None and one.by_names}}
    fitting = (
        reduce(and_, (fitting_consumers(ledger, consumer, one, its) for one, its in asked.items())),
        fitting_providers(ledger, consumer, versions[0], provider),
    )
    return _going_together((consumer, provider), versions, *fitting)


def _going_together(
    packages: tuple[Released, Released], versions: tuple[str, str], consumers: Releases, providers: Releases
) -> Mapping[str, Value]:
    """Return the nearest releases of either, those of the consumer only if it has to be another one."""
    consumer, provider = packages
    wanted = providers.nearest(versions[1]).specifier
    others = consumers.nearest(versions[0]).specifier if consumers.has(versions[0]) is False else None
    return {
        "constraint": provider.name + wanted if wanted else ABSENT,
        "consumer_constraint": consumer.name + others if others else ABSENT,
    }


def _listed(entries: list[str]) -> str:
    several = list(dict.fromkeys(entries))
    more = f", … +{len(several) - _SHOWN}" if len(several) > _SHOWN else ""
    return ", ".join(several[:_SHOWN]) + more
