"""The report: everything one run has to say, before any rendering; and the formats by name."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import Registry
from envdoctor.facts.values import Fact, Origin, Range, Records, Unknown
from envdoctor.judge.finding import Finding, NotChecked, Plan
from envdoctor.observe.request import Target
from envdoctor.system.clean import clean
from envdoctor.system.message import Message, mapped

if TYPE_CHECKING:
    from envdoctor.peak.section import MemorySection
    from envdoctor.peak.summary import DataSection
    from envdoctor.report.revision_section import RevisionSection


Value = TypeVar("Value")

#: Characters kept of one text; values of facts are kept whole.
_LONGEST = 4_000
#: A report says most of its words many times: what is missing for a hundred rules, their severities and kinds.
_clean = lru_cache(maxsize=1024)(clean)


class CleanFacts(FactSet):
    """The same facts, each cleaned when it is read: most of an environment's facts are never printed."""

    def __init__(self, facts: FactSet) -> None:
        super().__init__()
        self._facts, self._complete = facts._facts, facts._complete

    def get(self, key: str) -> Fact:
        return _clean_fact(super().get(key))

    def complete_prefixes(self) -> Mapping[str, str]:
        return cleaned(super().complete_prefixes())

    def __iter__(self) -> Iterator[Fact]:
        return map(_clean_fact, super().__iter__())


def cleaned(value: Value, longest: int | None = _LONGEST) -> Value:
    """Return the same value with every string in it cleaned, keys included; classes stay as they are. The indentation
    of a line of code is kept. ``longest`` caps the strings, in characters."""
    new: Any = value
    match new:
        case Message():
            new = mapped(new, lambda part: _clean(part, longest))
        case Origin():
            new = Origin(_clean(new.path, longest), new.line, new.cell)
        case str():
            text = _clean(new, longest)
            new = " " * (len(new) - len(new.lstrip(" "))) + text if new[:1] == " " and text else text
        case FactSet():
            new = CleanFacts(new)
        case tuple():
            items = [cleaned(item, longest) for item in new]
            new = type(new)(*items) if hasattr(new, "_fields") else tuple(items)
        case list():
            new = [cleaned(item, longest) for item in new]
        case Mapping():
            new = {cleaned(key, longest): cleaned(item, longest) for key, item in new.items()}
        case Records():
            incomplete = new.incomplete and cleaned(new.incomplete)
            new = Records(tuple(cleaned(item, longest) for item in new), incomplete)
        case Unknown() if not isinstance(new, Range):
            new = Unknown(cleaned(new.reason))
    return new  # type: ignore[no-any-return]


def _clean_fact(fact: Fact) -> Fact:
    return Fact(clean(fact.key), cleaned(fact.value, None), cleaned(fact.origin), fact.source)


class Notice(NamedTuple):
    """A notice about the run itself: an expired ignore, an unreadable folder. ``level`` is error, warning or note."""

    level: str
    text: Message


class TargetOutcome(NamedTuple):
    """One machine of several that were judged: its name among them, its counts of findings, its own exit code."""

    name: str
    errors: int
    warnings: int
    exit_code: int


class _Parts(NamedTuple):
    """The parts of a report.

    ``findings`` are in order (severity, effect, id, item), with the ignored and the superseded ones; flags on each say
    whether it gates. ``rules_checked`` counts rules with a yes or a no, ``passed`` names the rules with a no. ``plan``
    is one set of changes for the errors among the findings.
    ``revision``, ``probe``, ``data`` and ``memory`` are the sections of a comparison, the experiments, a look at the
    training data and a prediction; ``probe_commands`` run the experiments that findings name. ``unjudged`` are
    sentences about what a reader would believe to be judged. ``all_facts``: documents
    for programs hold every fact, not only those that findings rest on. ``targets`` are the machines, if several were
    judged.
    """

    command: str
    target: Target
    facts: FactSet
    registry: Registry
    matrix_version: str
    matrix_source: str
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    rules_checked: int
    exit_code: int
    notices: tuple[Notice, ...] = ()
    passed: tuple[str, ...] = ()
    plan: Plan | None = None
    revision: "RevisionSection | None" = None
    probe: dict[str, Any] | None = None
    data: "DataSection | None" = None
    memory: "MemorySection | None" = None
    probe_commands: Mapping[str, str] = {}
    unjudged: tuple[Message, ...] = ()
    all_facts: bool = False
    targets: tuple[TargetOutcome, ...] = ()
    elapsed_seconds: float = 0.0


class Report(_Parts):
    """The outcome of one run. Whatever it is made of, every text in it is clean: printable, on one line, bounded."""

    __slots__ = ()

    def __new__(cls, *parts: Any, **fields: Any) -> "Report":
        return tuple.__new__(cls, map(cleaned, _Parts(*parts, **fields)))

    def changed(self, **fields: Any) -> "Report":
        """Return the report with other parts."""
        return Report(**{**self._asdict(), **fields})

    @property
    def status(self) -> str:
        """Return ``incomplete`` if the job could not be done, else ``complete``."""
        return "incomplete" if self.exit_code == 3 else "complete"

    def shown(self) -> tuple[Finding, ...]:
        """Return the findings to show: neither ignored nor superseded."""
        return tuple(f for f in self.findings if f.ignored is None and f.superseded_by is None)

    def __repr__(self) -> str:
        counts = f"{len(self.shown())} findings, {len(self.not_checked)} rules not checked"
        return f"<{self.command}: {counts}, exit code {self.exit_code}>"

    def __str__(self) -> str:
        return self.written("terminal")

    def written(self, name: str, lang: str = "en") -> str:
        """Return the report in a format: ``terminal``, ``markdown``, ``html``, ``json``, ``sarif``, ...; en or zh.
        Raises :class:`~envdoctor.report.report.UnknownFormatError`."""
        return load(name)(self, lang)

    def to_json(self) -> str:
        """Return the report as ``--format json`` writes it."""
        return self.written("json")

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks: nothing of its style reaches the notebook."""
        from html import escape

        page = escape(self.written("html"), quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="" style="width: 100%; height: 32em; border: 1px solid #8888"></iframe>'
        )


#: The module and the function that write each format; the first one is the format without an option.
FORMATS = {
    "terminal": "terminal_report.render",
    "concise": "terminal_report.concise",
    "github": "forge_reports.github",
    "gitlab": "forge_reports.gitlab",
    "html": "html_report.render",
    "issue-comment": "markdown_report.issue_comment",
    "json": "json_report.render",
    "junit": "forge_reports.junit",
    "markdown": "markdown_report.render",
    "sarif": "forge_reports.sarif",
}


class UnknownFormatError(ValueError):
    """The format is unknown; the message lists the formats."""


def load(name: str) -> Callable[..., str]:
    """Import a format's module and return its writer: of a report, and en or zh, the text of a file with a final
    newline. A format for programs may have one language; ``terminal`` is plain by itself: no colour, no wrapping.
    Raises :class:`UnknownFormatError`."""
    if name not in FORMATS:
        raise UnknownFormatError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    module, _, writer = FORMATS[name].partition(".")
    write: Callable[..., str] = getattr(import_module(f"envdoctor.report.{module}"), writer)
    return write
