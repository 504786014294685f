"""``envdoctor explain``: the rule that a person means, with everything that the matrix has about it, and the answer to
an error, for given versions or for none."""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from envdoctor.app.errors import JobError, UsageProblem
from envdoctor.app.facts import Gathered, Sources, collect_facts, with_assignments
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Range
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.evaluate import text_of, title_of
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule, with_conditions
from envdoctor.observe.documents.tracebacks import Reading, numbered, read_error
from envdoctor.observe.sources import SOURCES
from envdoctor.remedy.answering import answer_to
from envdoctor.remedy.question import Answer, Home, Situation, Suspect
from envdoctor.remedy.suspects import suspects_in
from envdoctor.report.report import Notice
from envdoctor.system.documents import read_named
from envdoctor.system.files import because_of
from envdoctor.system.message import Message, did_you_mean, joined, said_by

#: Bytes of the log of a long run on many machines; the end of a longer one decides anyway.
_LARGEST = 64 * 1024 * 1024
#: Characters of an error that a sentence repeats.
_LONGEST_ERROR = 160
#: The sources that name an environment, in whole or in part.
_NAMED = (*SOURCES, "assignments")
#: Keys of versions: of packages, and of Python.
_VERSION = re.compile(r"pkg\.|python\.(?:version|minor)\Z")
#: A title that asks for a feature, or how an error may be foreseen, or tells how it was avoided, shows none.
_REQUEST = re.compile(
    r"(?i)(?P<wish>\A\W{0,9}(?:(?:new )?feature(?: request)?|feat|rfc|enhancement|proposal)\s?[\]:\uff1a\u3011]"
    r"|\bfeature request\b|\u529f\u80fd\u8bf7\u6c42)|\A\W{0,4}(?:avoid|prevent|fix|reduce)(?:e?[sd]|ing)?\b"
    r"|\A\W{0,4}(?:\u4fee\u590d|\u89e3\u51b3(?!\u4e0d))"
    r"|(?:\A\W*|\b(?:possible|way|how|option|ability|like|want) to )(?:never|no more|detect|handle|predict|estimate)\b"
    r"|(?<!how )\bto (?:avoid|prevent)\b|\u907f\u514d|\u9632\u6b62|\bnan\W{1,3}(?:false|no)\b|\bno(?:t|n-)? ?nan\b"
)
#: What notes say of an error in a clause.
_SHORTLY = {
    "unbuilt": "only the package itself imports it: it was not built, or its sources stand in front",
    "unfit": "{} calls something of another release than it was written for",
    "part": "Python found {}, and not this part of it",
    "class": "{} lacks what was asked of it",
}
#: Characters by which a message is known again in a line.
_SAME = 40


class Explained(NamedTuple):
    """The answer, and the environment whose facts it is for; ``gathered`` is None if the facts are those of the text,
    and ``because`` then says why no environment was found, if one was looked for."""

    answer: Answer
    gathered: Gathered | None
    facts: FactSet
    because: Message | None = None


def explain_error(text: str, matrix: Matrix, sources: Sources | None = None) -> Explained:
    """Answer a message or a traceback. ``sources`` names the environment; None answers for no versions in particular,
    and so does a default environment without torch, where no training could have failed. The text's own facts count if
    there is no environment, or only a default one with other versions than the text. The model is not read. Raises
    :class:`UsageProblem` for an empty text, and the errors of :func:`~envdoctor.app.facts.collect_facts`."""
    if not text.strip():
        raise UsageProblem("there is no text: give the message or the traceback, or - for standard input")
    gathered, because = (None, None) if sources is None else _gathered(sources._replace(model=None), matrix)
    told: FactSet | None = None
    if gathered is not None and sources is not None and any(getattr(sources, name, None) for name in _NAMED):
        facts = gathered.facts
    else:  # what a text says of the environment that wrote it
        from envdoctor.observe.documents.reports.report_file import report_facts

        facts, origin = report_facts(text, matrix, "log").facts, sources or Sources(cache=False)
        has_versions = any(facts.text(fact.key) for fact in facts.below("pkg."))
        if gathered is not None and not (has_versions and _differ(facts, gathered.facts)):
            told, facts = facts, gathered.facts
        else:
            gathered, because = None, None if has_versions else because
            if list(facts) or origin.assignments:
                facts = with_assignments(facts, origin, matrix)
    reading = read_error(text)
    answer = _answer(text, reading, Situation(matrix, facts))
    if told is not None and any(home.there for home in answer.homes):  # the error is of another environment
        homes = answer_to(reading, Situation(matrix, told)).homes
        shown = with_facts(told, [fact for home in homes if (fact := _lacking(home))], matrix)
        answer = answer._replace(suspects=_suspects(text, reading, Situation(matrix, shown)))
    return Explained(answer, gathered, facts, because)


def _lacking(home: Home) -> Fact | None:
    """Return what an error proves of a package: it is one of the releases that lack the name. None if none is known."""
    lacking = ~home.having if home.having is not None and home.kind in ("module", "name", "keyword", "member") else None
    if lacking is None or not lacking.yes:
        return None
    return Fact(f"pkg.{home.package}", Range(lacking.specifier or "", tuple(lacking.versions)), "the error", "given")


def _differ(logged: FactSet, facts: FactSet) -> bool:
    """Return whether a version in the log differs from the installed one, whose local tag (``+cu124``) the log may
    leave out."""
    versions = ((logged.text(fact.key), facts.text(fact.key) or "") for fact in logged if _VERSION.match(fact.key))
    return any(version not in (None, here, here.partition("+")[0]) for version, here in versions)


def _answer(text: str, reading: Reading, situation: Situation) -> Answer:
    return answer_to(reading, situation)._replace(suspects=_suspects(text, reading, situation))


def _suspects(text: str, reading: Reading, situation: Situation) -> tuple[Suspect, ...]:
    first, lines = numbered(text)
    suspects = suspects_in(situation, lines, first)
    if not reading.error:  # no error is shown: what the title says is what is asked, and other lines are words
        request = _REQUEST.search(lines[0] if lines else "")
        shown = (suspect for suspect in suspects if request is None or not (request["wish"] or suspect.line == first))
        suspects = tuple(sorted(shown, key=lambda suspect: (suspect.applies is not True, suspect.line != first)))
    return suspects


def _gathered(sources: Sources, matrix: Matrix) -> tuple[Gathered | None, Message | None]:
    """Return the environment; or None and the reason if one that was not named has no torch or is missing."""
    is_named = bool(sources.named)
    try:
        gathered = collect_facts(sources, matrix)
    except JobError as error:
        if is_named:
            raise
        return None, said_by(error)
    if is_named or gathered.target.kind == "none" or not gathered.facts.absent("pkg.torch"):
        return gathered, None
    return None, Message("{} ({}) has no torch", gathered.target.path, gathered.target.because)


def error_in(log: str, facts: FactSet, matrix: Matrix, ids: Set[str], file: str) -> Notice | None:
    """Return a sentence with the error that ended the run of a pasted text, its meaning, and the command that explains
    it; None without an error, or if a rule among ``ids`` is about it. A warning alone is a note."""
    reading = read_error(log)
    answer = _answer(log, reading, Situation(matrix, facts))
    suspect = next((other for other in answer.suspects if other.applies is not False), None)
    if ids & {*(other.id for other in answer.suspects), *(rule.id for rule in answer.rules)}:
        return None
    title = log.partition("\n")[0]  # a line further down may be a warning, or what pip says of versions
    has_error = bool(reading.error) or (reading.failure is not None and reading.message in title)
    refuted = next((one for one in answer.suspects if getattr(matrix.find(one.id), "severity", "") == "error"), None)
    sign = suspect or (None if has_error else refuted)
    # A traceback that is cut may lack its head; the arrow is that of rich.
    ended = has_error or bool(reading.frames) or "Traceback (most recent call last)" in log or "\u2771" in log
    if sign is None and not has_error:
        text = "the traceback in it has no last line: paste the line that names the error"
        return Notice("error", Message(text)) if ended else None
    text = "the run in it failed with {}; {}; why, and what to do: {}"
    message = (f"{reading.error}: {reading.message}" if reading.error else reading.message).partition("\n")[0]
    same = sign is None or sign.said in reading.message or reading.message[:_SAME] in sign.said
    if sign is not None and not (reading.error and same):
        text, message = "it says {}; {}; why, and what to do: {}", sign.said
    message = message if len(message) <= _LONGEST_ERROR else f"{message[: _LONGEST_ERROR - 3]}..."
    if not answer.known:  # `explain` knows no more
        text = "the run in it failed with {}; what it means is not known"
        ask = Message("give the whole traceback: its last file tells whose code failed")
        return Notice("error", joined([Message(text, message), *([] if reading.frames else [ask])]))
    command = " ".join(["envdoctor", "explain", *(["--log", "-"] if file == "-" else [quote(file)])])
    meaning = _meaning(suspect, answer)
    if suspect is None and refuted and not answer.homes:
        meaning = Message("{}; but what else is told says otherwise", refuted.title)
    level = "note" if sign is not None and sign.remark and not ended else "error"
    return Notice(level, Message(text, message, meaning, command))


def _meaning(suspect: Suspect | None, answer: Answer) -> Any:
    """Return the meaning of an error: by the suspect, else by the first package that was asked for something."""
    if suspect is not None:
        return Message("perhaps {}", suspect.title) if suspect.rule and suspect.applies is None else suspect.title
    notes = [Message(_SHORTLY[code], subject) for code, subject in answer.notes if code in _SHORTLY]
    if notes:
        return notes[0]
    home = next((home for home in answer.homes if home.there or home.releases is not None), None)
    if home is None:
        return Message("what it means is not known")
    package, releases = home.package, home.releases or ""
    if home.there:
        return Message("{} {} has it: files of several releases, or another environment", package, home.installed)
    if home.kind == "package":
        return Message("it needs {}{}", package, releases)
    if not releases and home.first and "lazy" not in dict(answer.notes):
        text = "every release of {} since {} has {}: it is an older one, or what it imports failed"
        return Message(text, package, home.first, home.thing)
    if not releases:
        return Message("every release of {} has {}: what it imports failed", package, home.thing)
    return Message("{} calls {}" if home.kind == "passes" else "{} has {}", f"{package} {releases}", home.thing)


def text_of_option(option: str, path: str) -> str:
    """Return the text of a file, or for ``-`` of standard input. Raises :class:`UsageProblem` where it cannot
    be read, and :class:`JobError` where it is too large."""
    try:
        data = read_named(Path(path), path, _LARGEST)
    except (OSError, ValueError) as error:
        raise UsageProblem("{} {}: cannot be read: {}", option, path, because_of(error)) from None
    if data is None:
        limit = _LARGEST // 1024 // 1024
        raise JobError("{} {}: larger than {} MiB: give its end, where the error stands", option, path, limit)
    return data.decode("utf-8", "replace")


class _NamedRule(NamedTuple):
    """The rule of an id, with its texts, fixes, evidence and tests; ``renamed_from`` is the former id that was given,
    if the rule has another id now."""

    rule: Rule
    texts: Mapping[str, Any]
    renamed_from: str | None = None


def rule_named(rule_id: str, matrix: Matrix) -> _NamedRule:
    """Return the rule of that id, present or former. Raises :class:`UsageProblem`."""
    rule, retired = matrix.find(rule_id), matrix.retired(rule_id)
    if rule is not None:
        return _NamedRule(with_conditions(rule), matrix.texts(rule))
    if retired is not None:
        if (successor := matrix.find(retired.get("now", ""))) is not None:
            return _NamedRule(with_conditions(successor), matrix.texts(successor), rule_id)
        raise UsageProblem("{} was withdrawn on {}: {}", rule_id, retired["date"], retired["because"])
    if re.search(r"[./\\]", rule_id):
        raise UsageProblem("there is no file {}, and no rule has such a name", rule_id)
    hint = did_you_mean(rule_id, matrix.origins(), Message("`envdoctor matrix list` names them"))
    raise UsageProblem("there is no rule {}; {}", rule_id, hint)


def rules_with(words: Iterable[str], matrix: Matrix) -> Iterator[tuple[Rule, str]]:
    """Yield the rules that have all these words in id, title, message, subject or severity, with their titles."""
    lowered = [word.lower() for word in words]
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        title, message = title_of(texts), text_of(texts["message"])
        said = (title.en, title.zh or "", message.en, message.zh or "", rule.origin)
        fields = (rule.id, rule.status, rule.severity, rule.confidence, rule.effect)
        if all(word in " ".join((*fields, *said)).lower() for word in lowered):
            yield rule, title.en
