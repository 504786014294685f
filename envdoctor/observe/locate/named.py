"""What --python names: an interpreter, its command name, or the folder of an environment."""

import os

from envdoctor.facts.values import Unknown
from envdoctor.observe.locate.caller import Caller, absolute
from envdoctor.observe.locate.installation import (
    Installation,
    at_prefix,
    interpreter_in,
    is_python_name,
    of_interpreter,
)
from envdoctor.observe.locate.layout import EnvironmentNotFound
from envdoctor.system.files import Files


def named_environment(python: str, caller: Caller) -> tuple[Installation, str | None]:
    """The installation and its interpreter, if it has one. A script (a shim of pyenv) or a binary without its library
    nearby is started and asked for its prefix. Raises :class:`EnvironmentNotFound`."""
    place = absolute(python, caller.cwd)
    if not os.path.lexists(place) and os.path.basename(python) == python:
        import shutil

        place = shutil.which(python, path=caller.environ.get("PATH", "")) or place
    if os.path.isdir(place):
        found = at_prefix(place, caller.files)
        if found is not None:
            return found, interpreter_in(place)
        raise EnvironmentNotFound("--python: {} holds no Python environment{}", place, _advice(place, caller.files))
    if not os.path.lexists(place):
        raise EnvironmentNotFound(
            "--python: {} does not exist; give an interpreter or the folder of an environment", place
        )
    if not is_python_name(place) and not is_python_name(os.path.realpath(place)):
        raise EnvironmentNotFound("--python: {} is not called like a Python interpreter, and is not started", place)
    if not os.path.exists(place):
        found = of_interpreter(place, caller.files)
        if found is None or found.kind != "venv":
            raise EnvironmentNotFound("--python: {} is a link to {}, which is gone", place, os.path.realpath(place))
        return found, place
    if not os.access(place, os.X_OK) and not place.lower().endswith(".exe"):
        raise EnvironmentNotFound("--python: {} is not executable", place)
    found = told_by_files(place, caller.files)
    if found is not None:
        return found, place
    answer = caller.ask(place)
    if isinstance(answer, Unknown):
        raise EnvironmentNotFound("--python: {}", answer.reason)
    found = of_interpreter(answer.executable, caller.files) or at_prefix(answer.prefix, caller.files)
    if found is None:
        raise EnvironmentNotFound("--python: no library folder was found below {}, its prefix", answer.prefix)
    return found, answer.executable


def told_by_files(executable: str, files: Files) -> Installation | None:
    """The installation of an interpreter that is there, without starting it: None when files do not tell.

    What a script starts is not known, except in a virtual environment: there pyvenv.cfg tells.
    """
    found = of_interpreter(executable, files)
    is_script = found is not None and found.kind != "venv" and files.text_or_empty(executable, 2) == "#!"
    return None if is_script else found


def _advice(folder: str, files: Files) -> str:
    """What may have been meant by a folder that is no environment."""
    inner = os.path.join(folder, ".venv")
    if files.is_file(os.path.join(inner, "pyvenv.cfg")):
        return f" of its own; did you mean {inner}?"
    if any(name.endswith(".dist-info") for name in files.names_or_none(folder)):
        return "; for a folder of packages use --path"
    return " (no pyvenv.cfg, no conda-meta, no library folder)"
