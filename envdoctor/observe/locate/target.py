"""Which environment is judged, and how it is laid out."""

from __future__ import annotations

import os
from collections.abc import Mapping

from envdoctor.facts.values import Unknown
from envdoctor.observe.locate.caller import Caller, Running, absolute, same_folder
from envdoctor.observe.locate.default import Choice, default_environment
from envdoctor.observe.locate.import_path import folders_of
from envdoctor.observe.locate.installation import WINDOWS, implementation_of, named_for_another
from envdoctor.observe.locate.layout import EnvironmentNotFound, Layout
from envdoctor.text.files import Budget, Files
from envdoctor.text.message import Message


def choose(
    python: str | None,
    path: str | None,
    root: str | None,
    *,
    environ: Mapping[str, str],
    cwd: str,
    running: Running | None = None,
) -> Layout:
    """The environment to judge, laid out.

    ``python`` is an interpreter or the folder of an environment, ``path`` a folder of packages, ``root`` the root
    folder of an image; at most one is given. Without any it is the running interpreter's environment, or, when that
    belongs to a tool that installed envdoctor for itself: ``VIRTUAL_ENV``, ``CONDA_PREFIX``, ``.venv`` in ``cwd``, the
    first python on PATH. ``environ`` and ``cwd`` are the caller's.

    Only an interpreter that ``python`` names is ever started, once, when its files do not give its version or its
    prefix; a note says so. Raises :class:`EnvironmentNotFound`.
    """
    if sum(option is not None for option in (python, path, root)) > 1:
        raise EnvironmentNotFound("--python, --path and --root name different environments: give only one of them")
    if path is not None:
        from envdoctor.observe.locate.bare import at_path

        return at_path(absolute(path, cwd), Message("--path"))
    if root is not None:
        from envdoctor.observe.locate.bare import at_root

        return at_root(absolute(root, cwd), Message("--root"))
    caller = Caller(environ, cwd, running or Running.this(), Files(budget=Budget()), [])
    if python is None:
        return _lay_out(default_environment(caller), caller)
    from envdoctor.observe.locate.named import named_environment

    installation, executable = named_environment(python, caller)
    return _lay_out(Choice(installation, executable, Message("--python")), caller, named=True)


def _lay_out(choice: Choice, caller: Caller, *, named: bool = False) -> Layout:
    """The layout of an environment on this machine; one that was ``named`` may be asked."""
    installation, executable = choice.installation, choice.executable
    path = folders_of(installation, caller.files, environ=caller.environ, cwd=caller.cwd)
    notes = list(choice.notes)
    gone: str | None = None
    if executable is not None and not os.path.exists(executable):
        gone, executable = os.path.realpath(executable), None
    elif installation.kind == "venv" and installation.base is None and installation.settings.get("home"):
        home = installation.settings["home"]
        notes.append(Message("the Python that this environment was made from is gone: {}", home))
    # A tree of Windows on another system is read, but does not run here.
    foreign = installation.library == WINDOWS and os.name != "nt"
    version, implementation, origin = _version(choice, executable if named and not foreign else None, caller)
    notes += [
        Message("{} was started, to be asked what no file tells", asked) for asked in dict.fromkeys(caller.started)
    ]
    return Layout(
        prefix=installation.prefix,
        executable=executable,
        site_packages=tuple(path.folders),
        python_version=version,
        implementation=implementation,
        kind=installation.kind,
        because=choice.because,
        live=not foreign,
        gone=gone,
        version_origin=origin,
        import_lines=tuple(path.import_lines),
        startup=tuple(path.startup),
        incomplete=path.problems[0] if path.problems else None,
        notes=(*notes, *path.problems),
        files=caller.files,
    )


def _version(choice: Choice, executable: str | None, caller: Caller) -> tuple[str | Unknown, str | Unknown, str]:
    """Version, implementation, and where the version comes from: ``sys``, a file, or the interpreter itself."""
    installation = choice.installation
    if same_folder(installation.prefix, caller.running.prefix):
        return caller.running.version, caller.running.implementation, "sys"
    from envdoctor.observe.locate.installation import version_from_files

    implementation = implementation_of(installation)
    other = named_for_another(installation, choice.executable)
    if other is not None:
        return other, implementation, Message("the name of its interpreter")
    found = version_from_files(installation, caller.files)
    if found is not None:
        return found.version, implementation, found.origin
    if executable is None:
        why = (
            Message("there is no interpreter to ask")
            if choice.executable is None
            else Message("only one named with --python is asked")
        )
        return Unknown(Message("no file gives it, and {}", why)), implementation, ""
    answer = caller.ask(executable)
    if isinstance(answer, Unknown):
        return answer, implementation, ""
    return answer.version, answer.implementation, Message("the interpreter")
