"""The meaning of a word that is typed without an option: ``envdoctor check train.py uv.lock Qwen/Qwen2.5-7B``."""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.matrix.gpu_code import counted, gpu_named
from envdoctor.matrix.matrix import load_matrix
from envdoctor.observe.documents.locks.opening import is_lock_name, is_readable
from envdoctor.observe.model.names import NameProblem, parse_name, printable
from envdoctor.system.files import Budget, Files, Spent
from envdoctor.system.message import Message, did_you_mean

#: How much of a file is read to recognise it.
_HEAD = 1 << 16
_MOST_NAMES = 2000
#: Keywords of options by globs of a file's name in lower case, the first that fits.
_NAMES = (
    ("setup.py", "lock"),
    ("*.py *.ipynb", "recipe code"),
    ("config.json", "model"),
    ("*pipfile.lock *requirements*.txt *requirements*.in *constraints*.txt", "lock"),
    ("*.sh *.bash *.zsh *.slurm *.sbatch *.cmd *.bat *.ps1", "recipe"),
    ("*.log *.out *.err *.md", "report"),
)
#: The same by patterns of a file's beginning, if its name leaves it open.
_CONTENTS = (
    (r'"envdoctor\.facts/\d', "facts"),
    (r'"(?:bomFormat|spdxVersion)"', "sbom"),
    (r"(?m)^(?:dependencies:|channels:|@EXPLICIT)", "lock"),
)
#: Lists by globs of a file's name, the surest first.
_SUREST = ("*.lock pylock*.toml", "requirements.txt", "*requirements*.txt *.yml *.yaml", "pyproject.toml")
#: A line of a list of requirements.
_LISTED = re.compile(r"(?:#|-[a-z-]|[\w.-]+(?:\[[\w,-]{1,99}\])?[ \t]*(?:[=<>~!]=|[<>@;]|\Z))")
#: The same of a folder, by a file in it.
_FOLDERS = (
    ("config.json", "model"),
    ("pyvenv.cfg conda-meta bin/python", "python"),
    ("etc/os-release usr/lib", "root"),
    ("*.dist-info", "path"),
    ("*.py *.ipynb", "code"),
)
#: Options that take a file or a folder.
_TAKING = ("recipe", "lock", "facts", "report", "sbom", "model", "code", "python", "path", "root")
#: Those that lie deeper.
_BELOW = ("bin/python", "etc/os-release", "usr/lib")


def meant(word: str, cwd: str, takes: Iterable[str]) -> Sequence[str]:
    """Return the keywords of the options that a word stands for, among those that a command ``takes``. An existing file
    or folder is recognised by its name and its beginning; ``KEY=VALUE`` and ``NAME==VERSION`` are facts, ``ORG/NAME``
    and ``7B`` models, ``4090`` and ``2xA100`` GPUs, a command in quotes is a recipe. Raises
    :class:`~envdoctor.app.errors.UsageProblem` for any other word, or one that the command does not take."""
    from envdoctor.observe.recipe.files import is_command

    path, files = os.path.join(cwd, word) if word else "", Files()
    if os.path.isdir(path):
        below = [name for name in _BELOW if os.path.exists(os.path.join(path, name))]
        names = [*files.names_or_none(path)[:_MOST_NAMES], *below]
        kinds = next((kinds for globs, kinds in _FOLDERS if _any_fits(names, globs)), "model")
    elif os.path.lexists(path):
        kinds = _of_file(path, files)
    elif is_command(word):
        kinds = "recipe"
    elif re.match(r"[a-z_]+\.[\w.]+=|[\w.-]+==", word):
        kinds = "assignments"
    elif "/" in word or re.search(r"(?i)\d{1,4}b(?![a-z])", word[:200]):
        with told_as(UsageProblem, NameProblem):
            parse_name(word, cwd, os.environ)
        kinds = "model"
    elif gpu_named((counted(word) or (1, word))[1], load_matrix()) is not None:
        kinds = "gpu_name target_gpu"
    elif re.fullmatch(r"(?i)\d{1,4}\s?Gi?B", word):
        raise UsageProblem("{}: a name with a blank is typed in quotes, or with a dash: A100-{}", word, word)
    else:
        hint = did_you_mean(word, files.names_or_none(cwd)[:_MOST_NAMES], Message("give a file, a folder or ORG/NAME"))
        raise UsageProblem("{}: no such file or folder, and no name of a model; {}", printable(word), hint)
    fitting = [kind for kind in kinds.split() if kind in takes]
    if not fitting:
        shown = " ".join(f"--{kind}" for kind in kinds.split())
        raise UsageProblem("{}: this command has no {}; its --help says what it takes", printable(word), shown)
    return fitting


def taken_otherwise(error: Message, option: str, words: Iterable[str], cwd: str) -> Message:
    """Return the error about files or folders given to an option, with the other option that one of them plainly
    belongs to; for a folder given as a lock, with the lists in it."""
    for word in words:
        path = os.path.join(cwd, word)
        lists = [name for name in Files().names_or_none(path)[:_MOST_NAMES] if _of_name(name) == "lock"]
        if option == "lock" and lists:
            return Message("{}; name a file of it: {}", error, ", ".join(sorted(lists)[:3]))
        kinds = meant(word, cwd, _TAKING) if os.path.isfile(path) else ()
        plain = kinds and option not in kinds and kinds[0] != "report" and not word.endswith("json")
        if plain:
            return Message("{}; this looks like --{} {}", error, kinds[0], word)
    return error


def list_in(folder: str) -> list[str]:
    """Return the name of the surest list of packages that lies in a folder and can be read, if one does."""
    files = Files(budget=Budget(seconds=0.5, size=1 << 22, steps=20_000))
    try:
        names = [name for name in files.names_or_none(folder)[:_MOST_NAMES] if printable(name) == name]
        for globs in _SUREST:
            for name in sorted(name for name in names if _any_fits([name], globs)):
                path = os.path.join(folder, name)
                is_list = os.path.isfile(path) and _of_file(path, files) == "lock"
                if is_list and is_readable(path, load_matrix().rows):
                    return [name]
    except Spent:
        pass
    return []


def _any_fits(names: Sequence[str], globs: str) -> bool:
    return any(fnmatchcase(name.lower(), glob) for glob in globs.split() for name in names)


def _of_name(name: str) -> str:
    """Return the keywords of options for a file by its name, or an empty text."""
    return next((kinds for globs, kinds in _NAMES if _any_fits([name], globs)), "lock" if is_lock_name(name) else "")


def _of_file(path: str, files: Files) -> str:
    name = os.path.basename(path)
    if re.match(r"(?:python|pypy)[\d.]*(?:\.exe)?\Z", name):
        return "python"
    if by_name := _of_name(name):
        return by_name
    try:
        head = files.text(path, _HEAD)
    except OSError:
        return "recipe"  # its reader says why it cannot be read
    otherwise = "report"
    if _any_fits([name], "*.yaml *.yml *.json *.json5 *.jsonc *.toml"):
        otherwise = "recipe"
    elif all(map(_LISTED.match, filter(None, map(str.strip, head.splitlines()[:400])))):
        otherwise = "lock"
    return next((kinds for pattern, kinds in _CONTENTS if re.search(pattern, head)), otherwise)
