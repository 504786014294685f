"""What ``envdoctor explain`` says: of an error message the answer, as text and as JSON (versioned, always English:
``schemas/error.schema.json``); of a rule its claim, conditions, fixes, evidence, history and tests."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envdoctor import __version__
from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import spell
from envdoctor.judge.evaluate import text_of, without_values
from envdoctor.matrix.rules import Condition, Rule, spelled
from envdoctor.observe.documents.tracebacks import Reading
from envdoctor.observe.request import Target
from envdoctor.remedy.question import Answer, Home, Suspect
from envdoctor.report.blocks import Block, Commands, Content, Field, Paragraph, Section
from envdoctor.report.header import target_fields
from envdoctor.report.json_report import json_data
from envdoctor.report.page import Page, pad, shortened
from envdoctor.report.report import cleaned
from envdoctor.report.terminal_report import plain_text
from envdoctor.system.clean import clean

_LONGEST_MESSAGE, _MISSING, _VERSIONS = 300, 4, 9
#: Files of Python itself.
_PYTHON = re.compile(r"<frozen|.*[/\\](?i:lib[/\\]python3|python3\d+[/\\]lib[/\\])")
_NOTES = {
    "circular": "Python was still executing {what} when the name was asked for: the error that stopped it, or an "
    "import in a circle, stands further up in the traceback",
    "elsewhere": "{what} has it: if the error is of another environment, name it with --python PATH or --lock FILE; if "
    "it is of this one, its files are not of that release",
    "mixed": "{what} asks for its own name: its files are of two releases, or changed after it was imported",
    "changed": "the released files of {what} do not ask for it when they are imported: if the error is of another "
    "environment, name it with --python PATH or --lock FILE; if it is of this one, its files were changed, or are of "
    "two releases",
    "unbuilt": "only the package itself imports {what}: it was not built (a checkout, an install that stopped), is for "
    "another Python or device, or a folder of the package's sources stands in front of what is installed",
    "unfit": "{what} makes this call: what it calls is of another release than it was written for, of the same package "
    "(files of two releases) or of one that it imports; a function of your own has to take what it is given",
    "part": "Python found {what}, and not this part of it: another release than the code was written for, a file or "
    "folder of that name in front (print its __file__), or a part that it failed to import itself",
    "class": "{what} lacks what was asked of it: the code that asks was written for another class or another release, "
    "of its package or of a base class's, or what should have added it did not run; the traceback says whose code asks",
    "lazy": "{what} is there, but something that it imports failed: the first error of the traceback says what",
    "shadow": "{what} stands in front of the installed package of that name",
    "not-a-package": "a file of the name {what}.py stands in front of the installed package",
    "no-files": "Python found a folder {what} without the package's files: what an uninstall left, or one of your own",
}
_ELSEWHERE = (
    "not in this environment; if the error is of another environment, name it with --python PATH or --lock FILE"
)
#: The words for a name's home, by what a package does with it, else by which of its releases have it.
_HOMES = {
    "package": "{thing} comes with {package}{releases}",
    "itself": "{package}{releases} is asked for",
    "passes": "{package} {releases} calls {thing}",
    "asks": "{package} {releases} asks for {thing}",
    "some": "{package} {releases} has {thing}",
    "every": "every release of {package} has {thing}",
    "none": "no release of {package} has {thing}",
    "doubted": "no release of {package} is known to have {thing}",
}


def answer_text(answer: Answer, page: Page, facts: FactSet, target: Target | None = None) -> str:
    """Return the answer at the page's width. ``facts`` are those of the environment ``target``, or without a target
    those of the text itself."""
    answer = cleaned(answer)
    reading = answer.reading
    headline = page.labelled(reading.error, reading.message) if reading.error else reading.message
    headline = headline or next((suspect.said for suspect in answer.suspects), "")
    head = Paragraph(shortened(headline, _LONGEST_MESSAGE), "")
    if not answer.known and not headline:
        text = page.say("No error in this text: neither a traceback nor the message of an error stands in it")
        if reading.frames:
            text = page.say("the traceback in it has no last line: paste the line that names the error")
        return plain_text([Section("", [Paragraph(text)])], page).rstrip("\n")
    if not answer.known:
        text = page.say("Not known: nothing about this is known of released packages")
        if reading.failure is None:
            text = page.say(
                "Not known: no symptom of a rule or a known error, and none of ImportError, AttributeError and "
                "unexpected keyword argument"
            )
        return plain_text([Section("", [head, Paragraph(text), *_where(reading, page)])], page).rstrip("\n")
    # One advice is enough: the releases that were read, with a command, stand for the release that a rule names.
    installs = {pin.partition("=")[0].rstrip("<>!~") for way in answer.ways if not way.withheld for pin in way.pins}
    packages_of = {suspect: suspect.packages or {*suspect.fix.en.split()} for suspect in answer.suspects if suspect.fix}
    repeats = {suspect for suspect, packages in packages_of.items() if installs.intersection(packages)}
    told = (suspect._replace(fix=None) if suspect in repeats else suspect for suspect in answer.suspects)
    suspects = [list(_suspect(suspect, page)) for suspect in told]
    fields = list(_fields(answer, page))
    groups: list[Sequence[Block]] = [[head], *suspects, fields] if suspects else [[head, *fields]]
    if target is not None:
        groups.append(target_fields(target, cleaned(facts), page))
    elif any(home.releases is not None for home in answer.homes):
        groups.append([Paragraph(page.say("For your versions: --python PATH, or --facts FILE"), "")])
    if target is None and (versions := _versions(cleaned(facts), page)):
        groups.insert(0, [Paragraph(page.say("Versions are those of the text: {versions}", versions=versions), "")])
    return plain_text([Section("", blocks) for blocks in groups], page).rstrip("\n")


def _versions(facts: FactSet, page: Page) -> str:
    """Return the versions of the packages that people ask for first, and how many more there are."""
    packages = [fact for fact in facts.below("pkg.") if facts.text(fact.key)]
    texts = {fact.key[4:]: page.fact(fact.key, spell(fact.value)) for fact in packages}
    first = [name for name in page.registry.first("pkg") if name in texts]
    return page.separated(page.some([texts[name] for name in dict.fromkeys([*first, *texts])], _VERSIONS))


def _where(reading: Reading, page: Page) -> Iterator[Field]:
    """Yield where an unknown error was raised, which line of the user's own code led to it, and what would help."""
    frames = list(reversed(reading.frames))
    own = next((call for call in frames[1:] if call.line and not call.module and not _PYTHON.match(call.path)), None)
    for label, frame in zip(("raised in", "called by"), (*frames[:1], own), strict=False):
        if frame is not None:
            place = page.say("{file}, line {n}", file=frame.module or frame.path, n=frame.line)
            yield _field(page.say(label), page.labelled(place, shortened(frame.code, 120)) if frame.code else place)
    package = next((frame.module.partition(".")[0] for frame in frames if frame.module), "")
    text = "search this message in the issues of {package}, with the release that is installed"
    if not package:
        text = "give the whole traceback: its last file tells whose code failed"
        text = "look at the values in that line: it is in no installed package" if frames else text
    yield _field(page.say("next"), page.say(text, package=package))


def _suspect(suspect: Suspect, page: Page) -> Iterator[Block]:
    name = f"rule[{suspect.id}]" if suspect.rule else page.say("known error")
    yield Paragraph(page.labelled(name, suspect.title.in_language(page.lang)), "")
    sighting = page.labelled(page.say("line {n}", suspect.line), shortened(suspect.said, 200))
    yield _field(page.say("seen"), sighting)
    yield _field(page.say("why"), suspect.why.in_language(page.lang))
    if suspect.applies:
        yield _field(page.say("applies"), page.say("yes, by the facts that are known"))
    elif suspect.applies is False:
        yield _field(page.say("applies"), page.say(_ELSEWHERE))
    elif suspect.missing:
        names = page.separated([page.name(key) for key in suspect.missing[:_MISSING]])
        yield _field(page.say("applies"), page.say("not known without: {names}", names=names))
    if suspect.fix is not None:
        yield _field(page.say("do"), suspect.fix.in_language(page.lang))
    if suspect.source:
        yield _field(page.say("proof"), suspect.source)


def _field(label: str, *contents: Content) -> Field:
    return Field(f"  {label}", contents)


def _fields(answer: Answer, page: Page) -> Iterator[Field]:
    for code, subject in answer.notes:
        yield _field(page.say("cause"), page.say(_NOTES[code], what=subject))
    if answer.asker is not None:
        asker = answer.asker
        text = page.bracket(
            f"{asker.package} {asker.version}".rstrip(), asker.module if asker.module != asker.package else ""
        )
        if asker.asks:
            text = page.say("{text}; its releases {releases} ask for it", text=text, releases=asker.asks)
        yield _field(page.say("asked by"), text)
    for home in answer.homes:
        yield _field(page.say("releases"), _home(home, page))
    for moved in answer.moved:
        text = page.bracket(moved.new, f"{moved.package} {moved.releases}".rstrip()) if moved.new else ""
        write = moved.write.in_language(page.lang) if moved.write is not None else ""
        yield _field(page.say("instead"), page.labelled(text, write))
    if answer.asker is not None and answer.asker.fits not in ((), (answer.asker.version,)):
        releases = f"{answer.asker.package} {', '.join(answer.asker.fits)}"
        beside = page.say("beside {package}", package=answer.asker.beside) if answer.asker.beside else ""
        yield _field(page.say("fits"), page.bracket(releases, beside))
    for number, way in enumerate(way for way in answer.ways if not way.withheld):
        label = page.say("do") if number == 0 else "   " + page.say("or")
        content: Content = Commands(way.commands or [page.say("install {pins}", pins=page.separated(list(way.pins)))])
        if way.kind == "rename":
            content = page.say("rename {what}, and the folder __pycache__ beside it", what=way.what)
        elif way.kind == "accept":
            content = page.say("let your method take {what} too, or any: *args, **kwargs", what=way.what)
        yield _field(label, content)
    for way in (way for way in answer.ways if way.withheld):
        pins, reason = page.separated(list(way.pins)), page.sentence(way.withheld or "")
        yield Field("", [page.say("not offered: {fix}: {reason}", fix=pins, reason=reason)])
    for rule in answer.rules:
        yield _field(page.say("rule"), page.labelled(rule.id, rule.title.in_language(page.lang)))
    yield from (_field(page.say("proof"), moved.source) for moved in answer.moved if moved.source)


def _home(home: Home, page: Page) -> str:
    kind = "some" if home.releases else "every" if home.releases == "" else "doubted" if home.doubt else "none"
    kind = "itself" if home.thing == home.package else home.kind if home.kind in _HOMES else kind
    words = {"package": home.package, "releases": home.releases or "", "thing": home.thing}
    text = page.say(_HOMES[kind], **words)
    if home.doubt and home.releases:
        text += page.say(", others perhaps too")
    if home.first:
        text = page.bracket(text, page.say("read: {first} to {last}", first=home.first, last=home.last))
    if home.installed and home.kind not in ("passes", "asks"):
        here = f"{home.package} {home.installed}"
        if home.there is None:
            text += page.say("; whether {package} has it is not known", package=here)
        elif home.there is False:
            text += page.say("; {package} does not", package=here)
    return text


SCHEMA_NAME = "envdoctor.error"
#: Within a major version fields are only added.
SCHEMA_VERSION = "1.0"


def answer_json(answer: Answer, target: Target | None = None) -> str:
    """Return the answer as ASCII-only JSON with a final newline; ``target`` is the environment that it is for. Leave
    out what is unknown."""
    answer = cleaned(answer)
    failure = answer.reading.failure
    document = {
        "schema": {"name": SCHEMA_NAME, "version": SCHEMA_VERSION},
        "tool": {"name": "envdoctor", "version": __version__},
        "known": answer.known,
        "error": _without_empty({"name": answer.reading.error, "message": answer.reading.message}),
        **({"asked": _without_empty(failure._replace(message=""))} if failure is not None else {}),
        "homes": [_without_empty(home._replace(having=None)) | {"releases": home.releases} for home in answer.homes],
        "moved": [_without_empty(moved) for moved in answer.moved],
        **({"asker": _without_empty(answer.asker)} if answer.asker is not None else {}),
        "ways": [_without_empty(way) for way in answer.ways],
        "suspects": [_without_empty(suspect._replace(packages=frozenset())) for suspect in answer.suspects],
        "rules": [_without_empty(rule) for rule in answer.rules],
        "notes": [{"code": code, "about": about} for code, about in answer.notes],
        **({"target": cleaned(target)._asdict()} if target is not None else {}),
    }
    return json.dumps(document, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _without_empty(value: Any) -> dict[str, Any]:
    """Return the value's fields without empty and false ones; a false ``there`` or ``applies`` stays as an answer."""
    answers = ("there", "applies")
    return {name: item for name, item in json_data(value).items() if item or (name in answers and item is False)}


_WIDTH = 80
_LABEL = 12


def rule_text(
    rule: Rule, texts: Mapping[str, Any], registry: Registry, *, lang: str = "en", renamed_from: str | None = None
) -> str:
    """Return the text, at most 80 columns wide where words allow it, without the values of a run."""
    page = Page(registry, lang, _WIDTH)
    lines = [f"{rule.severity}[{rule.id}]"]
    lines += page.lines(page.say("(formerly {id})", id=renamed_from)) if renamed_from else []
    message, why, details = (
        without_values(text_of(texts[part])).in_language(lang) for part in ("message", "why", "details")
    )
    paragraphs = [" ".join(text.split()) for text in details.split("\n\n") if text]
    lines += page.lines(message, "  ", "  ")
    lines += [line for text in (why, *paragraphs) for line in ("", *page.lines(text, "  ", "  "))]
    never = page.say("{status}: it never fails a run", status=rule.status) if rule.status != "active" else ""
    words = {
        page.say("severity"): rule.severity,
        page.say("confidence"): rule.confidence,
        page.say("effect"): rule.effect,
        page.say("status"): never,
        page.say("probe"): rule.probe,
    }
    lines += ["", *(pad(label, _LABEL) + word for label, word in words.items() if word)]
    lines += ["", page.say("applies when"), *_clauses(rule.affects, rule.each, page)]
    if rule.unless:
        lines += [page.say("unless"), *_clauses(rule.unless, rule.each, page)]
    for key, value, because, default in rule.assume:
        kind = page.say("default") if default else page.say("guess: lowers the confidence")
        text = page.say("{key} not given: {value} is assumed ({kind})", key=key, value=value, kind=kind)
        lines += page.lines(page.labelled(text, text_of(because).in_language(lang)))
    lines += ["", page.say("fixes"), *([] if texts["fix"] else ["  " + page.say("none is known")])]
    for fix in texts["fix"]:
        lines += page.lines(page.bracket(text_of(fix["summary"]).in_language(lang), fix["safety"]), "  - ", "    ")
        parts = [*fix["constraints"], *(f"{key} = {value}" for key, value in {**fix["set"], **fix["env"]}.items())]
        lines += [f"      {part}" for part in ([*parts, fix["command"]] if fix["command"] else parts)]
    lines += ["", page.say("evidence")]
    for entry in texts["evidence"]:
        checked = page.say("checked {date}", date=entry["checked"])
        lines += [
            f"  {entry['kind']}: {entry['url']}",
            *page.lines(page.bracket(entry["shows"], checked), "    ", "    "),
        ]
    lines += ["", page.say("history"), *_history(rule, texts, page)]
    counts = Counter(test["expect"] for test in texts["test"])
    spelled = ", ".join(f"{counts[word]} {word}" for word in ("match", "no", "unknown") if counts[word])
    command = f"envdoctor matrix test {rule.id}"
    summary = page.say("{n} ({which}); run them: {command}", n=len(texts["test"]), which=spelled, command=command)
    file = ("" if rule.id.startswith("x-") else "matrices/") + rule.origin
    lines += ["", pad(page.say("tests"), _LABEL) + summary, pad(page.say("rule file"), _LABEL) + file, ""]
    lines += [page.say("Accept: {command}", command=f"envdoctor ignore {rule.id} --reason ...")]
    lines += [page.say("Wrong? {command}", command="envdoctor facts --for-issue")]
    return "\n".join(cleaned(lines, None))


def _clauses(clauses: Sequence[Sequence[Condition]], each: str | None, page: Page) -> Iterator[str]:
    for number, clause in enumerate(clauses):
        if number:
            yield "  " + page.say("or")
        for position, condition in enumerate(clause):
            lead = "    " + (page.say("and") + " " if position else "")
            key = f"{condition.quantifier}({condition.key})" if condition.quantifier else condition.key
            if each is not None and condition.key.startswith(each + "."):
                key = page.bracket(key, page.say("each {name}", name=each))
            operand = page.say(" or ").join(map(spelled, condition.alternatives))
            yield from page.lines(f"{key}  {operand}", lead, "        ")


def _history(rule: Rule, texts: Mapping[str, Any], page: Page) -> Iterator[str]:
    added, modified, bound = texts["added"], texts["modified"], texts["bound"]
    lines = [page.say("added {added}, last change of its meaning {modified}", added=added, modified=modified)]
    seen = "last seen in {name} {version}; later releases were not tried"
    for kind, text in (("fixed_in", "fixed in {name} {version}"), ("last_seen", seen)):
        for key, version in bound.get(kind, {}).items():
            lines.append(page.say(text, name=key.removeprefix("pkg."), version=version))
    if bound.get("open_ended"):
        lines.append(page.say("no release without it is known"))
    if rule.supersedes:
        lines.append(page.say("stands for {ids} when both apply", ids=", ".join(rule.supersedes)))
    if rule.folds_into:
        lines.append(page.say("is folded into a finding that says what these packages do to each other"))
    for text in lines:
        yield from page.lines(text)


def names_and_titles(rules: Iterable[tuple[Rule, str]]) -> Iterator[str]:
    """Yield two lines a rule: its id with severity, confidence and effect, and its title."""
    for rule, title in rules:
        yield clean(f"{rule.id}  ({rule.severity}, {rule.confidence}, {rule.effect})")
        yield f"    {clean(title)}"
