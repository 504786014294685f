"""Which environment is judged, and how it is laid out: the one that ``--python`` names, or the one that a job started
here would use."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.observe.locate.installation import (
    WINDOWS,
    Installation,
    at_prefix,
    implementation_of,
    interpreter_in,
    is_python_name,
    named_for_another,
    of_interpreter,
    read_settings,
    version_from_files,
)
from envdoctor.observe.locate.layout import EnvironmentNotFound, Layout, at_path, at_root, folders_of
from envdoctor.system.files import Budget, Files
from envdoctor.system.message import NOTHING, Message, joined

_TIMEOUT_SECONDS = 10.0
_QUESTION = (
    "import sys, json; i = sys.implementation; print(json.dumps({'version': sys.version.split()[0], "
    "'implementation': i.name, 'executable': sys.executable, 'prefix': sys.prefix}))"
)


class Running(NamedTuple):
    """What an interpreter says of itself (``sys``). ``library`` is the name of its library folder, and ``base_prefix``
    that of what it was made from: both are known of the running one alone."""

    prefix: str
    base_prefix: str
    executable: str
    version: str
    implementation: str
    library: str

    @classmethod
    def this(cls) -> "Running":
        """Return the interpreter that runs this code."""
        name = sys.implementation.name
        free_threaded = "t" if "t" in getattr(sys, "abiflags", "") else ""
        library = f"{'pypy' if name == 'pypy' else 'python'}{sys.version_info[0]}.{sys.version_info[1]}{free_threaded}"
        version = sys.version.split()[0].rstrip("+")
        return cls(sys.prefix, sys.base_prefix, sys.executable or "", version, name, library)


class Caller(NamedTuple):
    """The variables and the working folder of whoever asks, the running interpreter, files as they are on this
    machine, and the interpreters that were started."""

    environ: Mapping[str, str]
    cwd: str
    running: Running
    files: Files
    started: list[str]

    def ask(self, executable: str) -> Running | Unknown:
        """Start an interpreter once, without ``site`` (``-I -S -B``), to print what it is, and note it in ``started``.

        It gets no input, ten seconds and a minimal environment; more than 64 KiB of output is not read. It is not
        started beside a pyvenv.cfg that is a pipe: it would read that first, and wait.
        """
        folder = os.path.dirname(executable)
        for place in (folder, os.path.dirname(folder)):
            settings = os.path.join(place, "pyvenv.cfg")
            if os.path.exists(settings) and not self.files.is_file(settings):
                return Unknown(Message("{} cannot be read: it is not a regular file", settings))
        self.started.append(executable)
        from envdoctor.system.asking import Limits, ask_program, minimal_environment

        argv = [executable, "-I", "-S", "-B", "-c", _QUESTION]
        limits, environ = Limits(_TIMEOUT_SECONDS, mib=512, output=1 << 16), minimal_environment(self.environ)
        text, problem = ask_program(argv, limits, environ=environ, cwd=self.cwd)
        if problem is not None and problem.kind in ("unstarted", "timeout"):
            return Unknown(Message("{} {}", executable, problem.clause()))
        import json

        try:
            answer: Any = json.loads(text.strip().splitlines()[-1])
            parts = [answer[name] for name in ("prefix", "executable", "version", "implementation")]
        except (IndexError, KeyError, TypeError, ValueError, RecursionError):
            parts = [None]
        if not all(isinstance(part, str) and len(part) < 4096 and "\0" not in part for part in parts):
            return Unknown(Message("{} does not answer like a Python interpreter", executable))
        prefix, own, version, implementation = parts
        return Running(prefix, "", own, version.rstrip("+"), implementation, "")


def absolute(path: str, cwd: str) -> str:
    """Return a path as the caller means it; links are kept, because a virtual environment's interpreter is one."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def same_folder(folder: str, other: str) -> bool:
    """Return whether two paths lead to the same folder."""
    try:
        return os.path.normcase(os.path.realpath(folder)) == os.path.normcase(os.path.realpath(other))
    except ValueError:  # an embedded NUL
        return False


def named_environment(python: str, caller: Caller) -> tuple[Installation, str | None]:
    """Return the installation and its interpreter, if it has one. A script (a shim of pyenv) or a binary without its
    library nearby is started and asked for its prefix. Raises :class:`EnvironmentNotFound`."""
    place = absolute(python, caller.cwd)
    if not os.path.lexists(place) and os.path.basename(python) == python:
        import shutil

        place = shutil.which(python, path=caller.environ.get("PATH", "")) or place
    if os.path.isdir(place):
        installation = at_prefix(place, caller.files)
        if installation is not None:
            return installation, interpreter_in(place)
        raise EnvironmentNotFound("--python: {} holds no Python environment{}", place, _advice(place, caller.files))
    if not os.path.lexists(place):
        raise EnvironmentNotFound(
            "--python: {} does not exist; give an interpreter or the folder of an environment", place
        )
    if not is_python_name(place) and not is_python_name(os.path.realpath(place)):
        raise EnvironmentNotFound("--python: {} is not called like a Python interpreter, and is not started", place)
    if not os.path.exists(place):
        installation = of_interpreter(place, caller.files)
        if installation is None or installation.kind != "venv":
            raise EnvironmentNotFound("--python: {} is a link to {}, which is gone", place, os.path.realpath(place))
        return installation, place
    if not os.access(place, os.X_OK) and not place.lower().endswith(".exe"):
        raise EnvironmentNotFound("--python: {} is not executable", place)
    installation = told_by_files(place, caller.files)
    if installation is not None:
        return installation, place
    answer = caller.ask(place)
    if isinstance(answer, Unknown):
        raise EnvironmentNotFound("--python: {}", answer.reason)
    installation = of_interpreter(answer.executable, caller.files) or at_prefix(answer.prefix, caller.files)
    if installation is None:
        raise EnvironmentNotFound("--python: no library folder was found below {}, its prefix", answer.prefix)
    return installation, answer.executable


def told_by_files(executable: str, files: Files) -> Installation | None:
    """Return the installation of an interpreter that is there, without starting it: None when files do not tell.

    What a script starts is not known, except in a virtual environment: there pyvenv.cfg tells.
    """
    installation = of_interpreter(executable, files)
    is_script = installation is not None and installation.kind != "venv" and files.text_or_empty(executable, 2) == "#!"
    return None if is_script else installation


def _advice(folder: str, files: Files) -> str:
    """Return what may have been meant by a folder that is no environment."""
    inner = os.path.join(folder, ".venv")
    if files.is_file(os.path.join(inner, "pyvenv.cfg")):
        return f" of its own; did you mean {inner}?"
    if any(name.endswith(".dist-info") for name in files.names_or_none(folder)):
        return "; for a folder of packages use --path"
    return " (no pyvenv.cfg, no conda-meta, no library folder)"


# The environment that is judged when none is named: the one a job started here would use.

#: Buckets of uv's cache that hold environments: uvx, uv run --with, scripts.
_UV_BUCKET = ("archive-v", "environments-v", "builds-v")


class Choice(NamedTuple):
    """An installation, its interpreter if it has one, a clause that says why this one, and sentences for the user."""

    installation: Installation
    executable: str | None
    because: Message
    notes: tuple[Message, ...] = ()


def default_environment(caller: Caller) -> Choice:
    """Return the running interpreter's environment, unless a tool made that one for envdoctor alone.

    Raises :class:`EnvironmentNotFound`.
    """
    tool = _tool_of(caller.running.prefix, caller.files, caller.environ)
    if tool is None:
        here = _of_running(caller)
        executable = caller.running.executable or None
        return Choice(here, executable, Message("the interpreter that runs envdoctor"), _other_active(here, caller))
    notes: list[Message] = []
    for installation, executable, because in _candidates(caller, notes):
        return Choice(installation, executable, Message("{}; {}", because, _made_by(tool)), tuple(notes))
    raise EnvironmentNotFound(
        "{}, which is not the one to judge, and there is no other: VIRTUAL_ENV and CONDA_PREFIX name none, {} is "
        "none, and no other python is on PATH. Point at the environment with --python PATH.{}",
        _made_by(tool),
        os.path.join(caller.cwd, ".venv"),
        Message(" ({})", joined(notes)) if notes else NOTHING,
    )


def _made_by(tool: str) -> Message:
    return Message("envdoctor itself runs in an environment that {} made for it", tool)


def _of_running(caller: Caller) -> Installation:
    """Return the installation of the running interpreter: what ``sys`` knows is not guessed again from files."""
    running = caller.running
    installation = at_prefix(running.prefix, caller.files, running.library)
    if installation is None:
        raise EnvironmentNotFound(
            "no library folder was found below {}, where the interpreter that runs envdoctor lives; point "
            "at the environment with --python PATH",
            running.prefix,
        )
    if installation.kind != "venv":
        return installation
    library = installation.library if installation.library == WINDOWS else running.library
    return installation._replace(base=running.base_prefix, library=library)


def _other_active(here: Installation, caller: Caller) -> tuple[Message, ...]:
    """Return a sentence when another environment is active; one inside an active conda environment is usual."""
    variable = "VIRTUAL_ENV" if caller.environ.get("VIRTUAL_ENV") or here.kind == "venv" else "CONDA_PREFIX"
    other = caller.environ.get(variable)
    if not other or same_folder(other, here.prefix) or _at(other, caller) is None:
        return ()
    return (Message("{} names another environment than the judged one; --python {} judges that one", variable, other),)


def _candidates(caller: Caller, notes: list[Message]) -> Iterator[tuple[Installation, str | None, str]]:
    own, environ = caller.running.prefix, caller.environ
    # uv writes this into the throw-away environment that `uv run --with` lays over the project's.
    extended = (read_settings(own, caller.files) or {}).get("extends-environment")
    places = [
        ("", extended, Message("the environment that uv run extends")),
        ("VIRTUAL_ENV", environ.get("VIRTUAL_ENV"), Message("the active virtual environment (VIRTUAL_ENV)")),
        ("CONDA_PREFIX", environ.get("CONDA_PREFIX"), Message("the active conda environment (CONDA_PREFIX)")),
        ("", os.path.join(caller.cwd, ".venv"), Message(".venv in the working directory")),
    ]
    for variable, folder, because in places:
        if not folder or same_folder(folder, own) or _tool_of(folder, caller.files, environ) is not None:
            continue
        installation = _at(folder, caller)
        if installation is not None:
            yield installation, interpreter_in(installation.prefix), because
        elif variable:
            notes.append(Message("{} names {}, which is no environment", variable, folder))
    yield from _on_path(caller, notes)


def _at(folder: str, caller: Caller) -> Installation | None:
    folder = os.path.join(caller.cwd, folder)
    return at_prefix(folder, caller.files) if caller.files.is_folder(folder) else None


def _on_path(caller: Caller, notes: list[Message]) -> Iterator[tuple[Installation, str | None, str]]:
    for directory in caller.environ.get("PATH", "").split(os.pathsep):
        for name in ("python.exe",) if os.name == "nt" else ("python", "python3"):
            executable = os.path.join(directory, name)
            if not os.path.isabs(directory) or not os.path.isfile(executable) or not os.access(executable, os.X_OK):
                continue
            if os.path.getsize(executable) == 0:  # Windows puts an empty file there, which opens its shop
                continue
            installation = told_by_files(executable, caller.files)
            if installation is None:
                notes.append(
                    Message("only {} itself could say which Python it starts; --python {} asks it", executable, name)
                )
            elif not same_folder(installation.prefix, caller.running.prefix):
                yield installation, executable, Message("{} on PATH", name)


def _tool_of(prefix: str, files: Files, environ: Mapping[str, str]) -> str | None:
    """Return the tool whose own environment this is ("uv tool", "uv", "pipx", "hf", "pre-commit"), or None.

    Judging such an environment would judge envdoctor's own dependencies. A plain ``uv venv`` is no tool environment.
    """
    if files.is_file(os.path.join(prefix, "uv-receipt.toml")):
        return Message("uv tool")
    if files.is_file(os.path.join(prefix, "pipx_metadata.json")):
        return "pipx"
    extension = os.path.dirname(prefix)  # huggingface_hub/cli/extensions.py: hf-NAME/manifest.json, hf-NAME/venv
    if os.path.basename(extension).startswith("hf-") and files.is_file(os.path.join(extension, "manifest.json")):
        return "hf"
    real = files.resolved(prefix)
    if any(part.startswith(_UV_BUCKET) for part in real.split(os.sep)) and (
        _in_cache(real, "uv", "UV_CACHE_DIR", environ)
        # A cache chosen with --cache-dir, or the temporary one of --no-cache, is known by its shape alone.
        or "uv" in (read_settings(real, files) or {})
    ):
        return "uv"
    for tool, variable in (("pre-commit", "PRE_COMMIT_HOME"), ("prek", "PREK_HOME")):
        if _in_cache(real, tool, variable, environ):
            return tool
    return None


def _in_cache(path: str, tool: str, variable: str, environ: Mapping[str, str]) -> bool:
    """Return whether it lies where the tool may keep its cache, by its variable or those of the system."""
    home = environ.get("HOME") or environ.get("USERPROFILE") or os.path.expanduser("~")
    places = [environ.get(variable, ""), os.path.join(home, ".cache", tool)]
    if environ.get("XDG_CACHE_HOME"):
        places.append(os.path.join(environ["XDG_CACHE_HOME"], tool))
    if environ.get("LOCALAPPDATA"):
        places.append(os.path.join(environ["LOCALAPPDATA"], tool, "cache"))
    folders = [os.path.normcase(os.path.realpath(place)).rstrip(os.sep) for place in places if place]
    return any(os.path.normcase(path).startswith(folder + os.sep) for folder in folders)


def choose(
    python: str | None,
    path: str | None,
    root: str | None,
    *,
    environ: Mapping[str, str],
    cwd: str,
    running: Running | None = None,
) -> Layout:
    """Return the environment to judge, laid out.

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
        return at_path(absolute(path, cwd), Message("--path"))
    if root is not None:
        return at_root(absolute(root, cwd), Message("--root"))
    caller = Caller(environ, cwd, running or Running.this(), Files(budget=Budget()), [])
    if python is None:
        return _lay_out(default_environment(caller), caller)
    return _lay_out(Choice(*named_environment(python, caller), Message("--python")), caller, named=True)


def _lay_out(choice: Choice, caller: Caller, *, named: bool = False) -> Layout:
    """Return the layout of an environment on this machine; one that was ``named`` may be asked."""
    installation, executable = choice.installation, choice.executable
    path = folders_of(installation, caller.files, environ=caller.environ, cwd=caller.cwd)
    notes = list(choice.notes)
    gone: str | None = None
    unseen = named_for_another(installation, executable) is not None
    if executable is not None and not os.path.exists(executable):
        gone, executable = os.path.realpath(executable), None
    elif installation.kind == "venv" and installation.base is None and installation.settings.get("home") and not unseen:
        home = installation.settings["home"]
        notes.append(Message("the Python that this environment was made from is gone: {}", home))
    # A tree of Windows on another system is read, but does not run here.
    foreign = installation.library == WINDOWS and os.name != "nt"
    version, implementation, origin = _version(choice, executable if named and not foreign else None, caller)
    notes += [
        Message("{} was started, to be asked what no file tells", question)
        for question in dict.fromkeys(caller.started)
    ]
    return Layout.of(
        path,
        notes,
        prefix=installation.prefix,
        executable=executable,
        python_version=version,
        implementation=implementation,
        kind=installation.kind,
        because=choice.because,
        live=not foreign,
        gone=gone,
        unseen=f"lib/{installation.library}" if unseen else None,
        version_origin=origin,
    )


def _version(choice: Choice, executable: str | None, caller: Caller) -> tuple[str | Unknown, str | Unknown, str]:
    """Version, implementation, and where the version comes from: ``sys``, a file, or the interpreter itself."""
    installation = choice.installation
    if same_folder(installation.prefix, caller.running.prefix):
        return caller.running.version, caller.running.implementation, "sys"
    implementation = implementation_of(installation)
    other = named_for_another(installation, choice.executable)
    if other is not None:
        return other, implementation, Message("the name of its interpreter")
    pair = version_from_files(installation, caller.files)
    if pair is not None:
        return pair[0], implementation, pair[1]
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
