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
    argument to a method of the user's own, for asks those that want it given. ``releases`` is a specifier ("" for all
    that are known, several spans joined by `` or ``), None when none is known to have it. ``first`` and ``last`` are
    the ends of what was looked through, empty when that is not known. ``doubt`` says why other releases may have it
    too. ``installed`` is the version of the judged environment ("" when it is not known), ``there`` whether that one
    has it, None when that cannot be told. ``having`` is what the ledger read of it (None: by a table), for no reader.
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
    """What to use in its place: ``new`` (``evaluate.load``) of ``package`` in ``releases`` ("": not told). ``write``
    says how. ``source`` is the address that shows it, empty for what the released files themselves show."""

    new: str
    package: str
    releases: str = ""
    write: Text | None = None
    source: str = ""


class Asker(NamedTuple):
    """The package whose code asked, and where. ``version`` is "" when it is not known. ``asks`` are the releases of it
    that ask for the thing by this name, as a specifier, None when that is not known. ``fits`` names the releases that
    do without, or that fit ``beside`` (``transformers 5.23.0``), the nearest first."""

    package: str
    module: str
    version: str = ""
    asks: str | None = None
    fits: tuple[str, ...] = ()
    beside: str = ""


class Way(NamedTuple):
    """Something to do. ``kind`` is install, write, accept (an argument), rename (a file), or reinstall; ``pins`` are
    requirements. ``withheld`` says why it is not offered in this environment."""

    kind: str
    pins: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    what: str = ""
    withheld: Message | None = None


class Named(NamedTuple):
    """A rule that speaks of the same names; ``applies`` is None when the facts do not tell."""

    id: str
    title: Text
    applies: bool | None


class Suspect(NamedTuple):
    """A rule that may explain a log: its symptom stands in ``line`` (from 1), which says ``said``. ``applies`` is None
    when the facts do not tell; ``missing`` are the keys that would. ``fix`` is the first of its fixes, with other
    releases of the ``packages`` that it installs where the facts do not tell, ``source`` the address of its first
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
    ``shadow``, ``mixed``, ``changed``, ``unbuilt``, ``elsewhere``, ``unfit``, ``lazy``) with what they are about."""

    reading: Reading
    homes: tuple[Home, ...] = ()
    moved: tuple[Moved, ...] = ()
    asker: Asker | None = None
    ways: tuple[Way, ...] = ()
    rules: tuple[Named, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> bool:
        """Return whether there is anything to say beyond the message."""
        return bool(self.suspects or self.homes or self.moved or self.ways or self.rules or self.notes)
