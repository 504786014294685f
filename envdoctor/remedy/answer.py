"""An answer to an error message, as data: renderers say it, programs read it."""

import re
from typing import NamedTuple

from envdoctor.judge.finding import Text
from envdoctor.observe.documents.tracebacks import Reading
from envdoctor.system.message import Message
from envdoctor.versions.releases import Releases

_WARNS = re.compile(r"Warning\b|\bwarn\(|\bWARNING\b")


class Home(NamedTuple):
    """The releases of ``package`` that have ``thing`` (``transformers.HybridCache``, ``TrainingArguments(no_cuda=)``).

    ``kind`` is package, module, name, keyword, member, passes or asks: for passes the releases are those that pass an
    argument to a method of the user's own, for asks those that require an argument. ``releases`` is a specifier ("" for
    all known releases, several spans joined by `` or ``), None if no release is known to have it. ``first`` and
    ``last`` are the first and last release that was read, empty if unknown. ``doubt`` says why other releases may have
    it too. ``installed`` is the version in the judged environment ("" if unknown), ``there`` whether that version has
    it, None if unknown. ``having`` are the ledger's releases (None: by a table); it is not shown.
    """

    package: str
    kind: str
    thing: str
    releases: str | None
    first: str = ""
    last: str = ""
    doubt: str = ""
    installed: str = ""
    there: bool | None = None
    having: Releases | None = None


class Moved(NamedTuple):
    """The replacement: ``new`` (``evaluate.load``) of ``package`` in ``releases`` ("" if unknown). ``write`` says how
    to use it. ``source`` is the address that shows it, empty if the released files themselves show it."""

    new: str
    package: str
    releases: str = ""
    write: Text | None = None
    source: str = ""


class Asker(NamedTuple):
    """The package whose code asked, and its module. ``version`` is "" if unknown. ``asks`` are its releases that ask
    for this name, as a specifier, None if unknown. ``fits`` are the releases that do not ask for it, or that fit
    ``beside`` (``transformers 5.23.0``), the nearest first."""

    package: str
    module: str
    version: str = ""
    asks: str | None = None
    fits: tuple[str, ...] = ()
    beside: str = ""


class Way(NamedTuple):
    """An action. ``kind`` is install, write, accept (an argument), rename (a file), or reinstall; ``pins`` are
    requirements. ``withheld`` says why it is not offered in this environment."""

    kind: str
    pins: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    what: str = ""
    withheld: Message | None = None


class RelatedRule(NamedTuple):
    """A rule about the same names; ``applies`` is None if the facts do not decide."""

    id: str
    title: Text
    applies: bool | None


class Suspect(NamedTuple):
    """A rule that may explain a log: its symptom stands in ``line`` (from 1), whose text is ``said``. ``applies`` is
    None if the facts do not decide; ``missing`` are the keys that would. ``fix`` is the first of its fixes, with other
    releases of the ``packages`` that it installs if the facts do not decide, ``source`` the address of its first
    evidence ("" for none). ``rule`` is False for a row of the table ``known-errors``."""

    id: str
    title: Text
    applies: bool | None
    line: int
    said: str
    why: Text
    fix: Text | None
    source: str
    missing: tuple[str, ...] = ()
    rule: bool = True
    packages: frozenset[str] = frozenset()

    @property
    def remark(self) -> bool:
        """Return whether the line is a warning, which did not end the run: an error in the same log says more."""
        return _WARNS.search(self.said) is not None


class Answer(NamedTuple):
    """``known`` is False when nothing is known about the error. ``notes`` are codes of further remarks (``circular``,
    ``shadow``, ``mixed``, ``changed``, ``unbuilt``, ``elsewhere``, ``unfit``, ``part``, ``class``, ``lazy``) with their
    subjects."""

    reading: Reading
    homes: tuple[Home, ...] = ()
    moved: tuple[Moved, ...] = ()
    asker: Asker | None = None
    ways: tuple[Way, ...] = ()
    rules: tuple[RelatedRule, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> bool:
        """Return whether the answer has anything beyond the message."""
        return bool(self.suspects or self.homes or self.moved or self.ways or self.rules or self.notes)
