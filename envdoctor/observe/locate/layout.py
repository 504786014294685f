"""Where an environment keeps its packages, and for which Python: the layout that the readers of this folder share."""

import os
from typing import NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.locate.import_path import Startup
from envdoctor.system.files import Files
from envdoctor.system.message import Message


class EnvironmentNotFound(ObservationError):
    """There is no environment to judge. The message is a sentence for the user: what was looked for, where, what to
    do."""


class EnvironmentUnreadable(EnvironmentNotFound):
    """The environment is there, but nothing of it can be read."""

    usage = False


class Layout(NamedTuple):
    """One environment on disk.

    ``prefix`` is its folder (``sys.prefix``) and ``executable`` its interpreter, which may be started; None when there
    is none or it must not be. ``site_packages`` are the folders that hold distributions, in import order, those of
    PYTHONPATH and of ``.pth`` lines included. ``kind`` is venv, conda, system, path or root. ``because`` is a clause
    for the report's first line: why this one. ``live`` is true when the environment would run on this machine, so that
    machine facts apply to it.

    ``gone`` is what its interpreter is a link to, when that is not there any more. ``version_origin`` names the file
    that gave the version. ``startup`` is all code that runs when Python starts, the ``import`` lines of ``.pth`` files
    and the modules that customize it; nobody runs it here. ``incomplete`` is None when
    ``site_packages`` is known to hold every folder, otherwise the reason why it may not. ``notes`` are sentences for
    the user. ``files`` reads the environment's files and keeps inside the root when there is one; readers use nothing
    else.
    """

    prefix: str
    executable: str | None
    site_packages: tuple[str, ...]
    python_version: str | Unknown
    implementation: str | Unknown
    kind: str
    because: Message
    live: bool
    files: Files
    gone: str | None = None
    version_origin: str = ""
    startup: tuple[Startup, ...] = ()
    incomplete: Message | None = None
    notes: tuple[Message, ...] = ()

    @property
    def has_finder(self) -> bool:
        """Whether a line of a ``.pth`` file may add modules that are in no folder (an editable install's finder)."""
        lines = [one for one in self.startup if one.file.endswith(".pth")]
        return any("finder" in one.code or "__editable__" in os.path.basename(one.file) for one in lines)
