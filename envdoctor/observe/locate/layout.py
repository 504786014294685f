"""Where an environment keeps its packages, and for which Python: the folders that an interpreter would import from, in
its order, by the rules of CPython's ``site``.

Code that runs when Python starts (the ``import`` lines of ``.pth`` files, sitecustomize.py and usercustomize.py) is
never run: it counts where it adds one folder to ``sys.path``; else it is noted whether it may do more."""

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.values import Unknown
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.locate.installation import (
    WINDOWS,
    Installation,
    at_prefix,
    has_standard_library,
    implementation_of,
    version_from_files,
)
from envdoctor.system.files import Budget, Files, because_of
from envdoctor.system.message import Message

LONGEST = 1 << 16
_TOUCHES = (
    r"\bsys\s*\.\s*(?:path|meta_path|path_hooks|path_importer_cache|modules(?!\s*\.get\b|\s*\[\s*__name__\s*\]))\b|"
    r"\b(?:from\s+sys\s+import|sys\s+as)\b|\b(?:addsitedir|addpackage)\b|"
    r"\b__import__\(\s*['\"]sys|\bsetattr\(\s*sys\b|\bgetattr\(\s*sys\s*,\s*['\"](?:path|meta_path|modules)"
)
_IMPORTS = (
    r"(?:\bimport[ \t]+|\bfrom[ \t]+|__import__\(\s*[\"']|import_module\(\s*[\"'])([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)"
)
_PTH_LIMIT = 1 << 20
#: More folders than this come from a mistake or from malice.
_MOST_FOLDERS = 500
#: The code that adds one folder: in front of all others, or behind them.
_ADDS = (
    r"import (?:sys|site)(?:, ?\w{1,40}){0,4}[ \t]*[;\n]\s*"
    r"(sys\.path\.insert\(0,|sys\.path\.append\(|sys\.path\[0?:0\] ?= ?\[|site\.addsitedir\()"
    r"[ \t]*(['\"])([^'\"\\\0]{1,1000})\2[)\]][ \t]*;?"
)
#: What ``setup.py develop`` wrote around the lines of easy-install.pth, so that they come before everything else.
_MARKED, _MOVED = "sys.__plen = len(sys.path)", "__egginsert"


class Startup(NamedTuple):
    """Code of a file, and whether what it does to the import path is ``known``."""

    file: str
    code: str
    known: bool

    @property
    def is_finder(self) -> bool:
        """Return whether it may add modules that are in no folder."""
        file = os.path.basename(self.file)
        return file.endswith(".pth") and ("finder" in self.code or "editable" in file)

    @property
    def imports(self) -> set[str]:
        """Return the modules that it names behind ``import``, by their first names."""
        statements = re.findall(_IMPORTS, self.code)
        return {name.strip().partition(".")[0] for names in statements for name in names.split(",")}


def touches(code: str) -> bool:
    """Return whether the code names anything that decides where modules come from."""
    return ("sys" in code or "add" in code) and re.search(_TOUCHES, code) is not None


class ImportPath:
    """Folders being collected, each once, with what was met on the way.

    ``folders`` are in import order; the first ``given`` ones are named by PYTHONPATH, as are the files in ``zipped``.
    ``startup`` is all code that runs when Python starts, and is never run here. ``problems`` are the reasons why
    folders may be missing, as clauses; ``files`` reads them. ``library`` is that of Python itself, if it is known.
    """

    def __init__(self, files: Files, library: str = "") -> None:
        self.folders: list[str] = []
        self.startup: list[Startup] = []
        self.zipped: list[str] = []
        self.problems: list[Message] = []
        self.given = 0
        self.files = files
        self._library = library
        self._seen: set[object] = set()
        self._front = 0

    def add(self, folder: str) -> bool:
        """Add a folder (or a zipped egg) that is there. One that cannot be looked at is added as well, so that whoever
        lists it reports it. False when nothing was added."""
        if len(self.folders) >= _MOST_FOLDERS:
            problem = Message("only the first {} folders of the import path are read", _MOST_FOLDERS)
            if problem not in self.problems:
                self.problems.append(problem)
            return False
        try:
            status = self.files.status(folder)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE):
                return False
            identity: object = folder
        else:
            if not stat.S_ISDIR(status.st_mode) and not folder.endswith(".egg"):
                return False
            identity = (status.st_dev, status.st_ino) if status.st_ino else os.path.normcase(folder)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        self.folders.append(folder)
        return True

    def customize(self, name: str) -> None:
        """Read sitecustomize.py or usercustomize.py: the first one on the path counts, unless the library of Python
        itself, which stands behind PYTHONPATH, has one of its own."""
        for folder in (*self.folders[: self.given], self._library, *self.folders[self.given :]):
            path = os.path.join(folder, name)
            if folder and self.files.is_file(path):
                if folder != self._library:
                    self._start(path, self.files.text_or_empty(path, LONGEST + 1))
                return

    def _start(self, file: str, code: str) -> None:
        """Note code that runs when Python starts; add its folder if that is all it does."""
        match = re.fullmatch(_ADDS, code.strip())
        is_known = match is not None and os.path.isabs(match[3])
        if match is not None and is_known:
            folder = os.path.normpath(self.files.inside(match[3]))
            (self.add_site if match[1].startswith("site") else self.add)(folder)
            if match[1].endswith((",", "[")) and folder in self.folders:
                self.folders.insert(0, self.folders.pop(self.folders.index(folder)))
        is_known = is_known or not touches(code)
        self.startup.append(Startup(file, code, is_known))
        if not is_known:  # a package that is not found may be where this leads
            self.problems.append(Message("code of {} at Python's start is not followed", file))

    def add_site(self, folder: str) -> None:
        """Add a site folder and the folders that the path lines of its ``.pth`` files name."""
        if not self.add(folder):
            return
        for name in self.files.names_or_none(folder):
            if name.endswith(".pth") and not name.startswith("."):
                self._read_pth(folder, name)

    def _fails(self, line: str) -> bool:
        """Return whether a line imports a module that neither Python nor a folder has so far."""
        match = re.fullmatch(r"import\s+([\w.]+(?:\s*,\s*[\w.]+)*)\s*(?:[;#].*)?", line)
        modules = {name.strip().partition(".")[0] for name in match[1].split(",")} if match else set()
        modules -= sys.stdlib_module_names  # as of nearly every line: then no folder is listed
        places = (*self.folders, self._library)
        if not modules or self.problems or self.zipped or any(code.is_finder for code in self.startup):
            return False  # it may be elsewhere
        names = (name for place in places for name in self.files.names_or_none(place) if not name.endswith(".pth"))
        there = {name.partition(".")[0] for name in names}
        return all(map(self.files.is_folder, places)) and not modules <= there

    def _read_pth(self, folder: str, name: str) -> None:
        try:
            content = self.files.head(os.path.join(folder, name), _PTH_LIMIT)
        except OSError as error:
            self.problems.append(Message("{} cannot be read: {}", name, because_of(error)))
            return
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = os.fsdecode(content)
        mark: int | None = None
        for line in text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith(("import ", "import\t")):
                if self._fails(line.rstrip()):
                    return  # Python leaves out the lines behind it
                self._start(os.path.join(folder, name), line)
                if _MARKED in line:
                    mark = len(self.folders)
                elif _MOVED in line and mark is not None:
                    # Before all other folders, behind those that were put there already.
                    moved, self.folders[mark:] = self.folders[mark:], []
                    self.folders[self._front : self._front] = moved
                    self._front += len(moved)
                continue
            line = line.rstrip()
            target = self.files.inside(line) if os.path.isabs(line) else os.path.join(folder, line)
            self.add(os.path.normpath(target) if "\0" not in target else target)


def folders_of(installation: Installation, files: Files, *, environ: Mapping[str, str] | None, cwd: str) -> ImportPath:
    """Return an installation's import folders, with PYTHONPATH and user site of ``environ``; None leaves both out."""
    library = ""
    if installation.base is not None and installation.library is not None:
        library = os.path.join(installation.base, "lib", installation.library)
    path = ImportPath(files, library)
    if environ is not None and environ.get("PYTHONPATH"):
        for entry in environ["PYTHONPATH"].split(os.pathsep):
            place = os.path.normpath(os.path.join(cwd, entry))
            path.given += path.add(place)
            path.zipped += [place] if files.is_file(place) else []
    venv = installation.kind == "venv"
    if venv:
        for folder in _site_folders(installation.prefix, installation.library, files):
            path.add_site(folder)
    # CPython's site.py, 3.8 to 3.13: a pyvenv.cfg that does not say so includes them.
    user = None
    if not venv or installation.settings.get("include-system-site-packages", "true").lower() == "true":
        user = _user_site(installation, environ) if environ is not None else None
        if user is not None:
            path.add_site(user)
        if installation.base is None:
            is_stated = "include-system-site-packages" in installation.settings
            why = "include-system-site-packages" if is_stated else Message("pyvenv.cfg does not exclude them")
            path.problems.append(Message("it includes its base's packages ({}), and the base is gone", why))
        else:
            for folder in _site_folders(installation.base, installation.library, files):
                path.add_site(folder)
    path.customize("sitecustomize.py")
    if user is not None:
        path.customize("usercustomize.py")
    return path


def _site_folders(prefix: str, library: str | None, files: Files) -> list[str]:
    """Return where a prefix may keep its packages, in order; not all of them exist."""
    if library is None:
        return []
    if library == WINDOWS:
        return [os.path.join(prefix, WINDOWS, "site-packages")]
    folders: list[str] = []
    usr = os.path.join(files.root or os.sep, "usr")
    if prefix == usr:
        local = os.path.join(usr, "local")
        debian = os.path.join(usr, "lib", "python3", "dist-packages")
        if files.is_folder(debian):
            folders += [os.path.join(local, "lib", library, "dist-packages"), debian]
            folders += [os.path.join(usr, "lib", library, "dist-packages")]
        elif not files.is_file(os.path.join(local, "lib", library, "os.py")):
            # Fedora and its kin add /usr/local to the system's own Python.
            folders += [os.path.join(local, lib, library, "site-packages") for lib in ("lib64", "lib")]
    # A virtual environment's lib64 is a link to lib; elsewhere it comes first (sys.platlibdir).
    linked = os.path.islink(os.path.join(prefix, "lib64"))
    libs = ("lib", "lib64") if linked else ("lib64", "lib")
    return folders + [os.path.join(prefix, lib, library, "site-packages") for lib in libs]


def _user_site(installation: Installation, environ: Mapping[str, str]) -> str | None:
    """Return the user's own site folder (``site.getusersitepackages``), or None when it is switched off."""
    if environ.get("PYTHONNOUSERSITE") or installation.library is None:
        return None
    chosen = environ.get("PYTHONUSERBASE")
    home = environ.get("HOME") or os.path.expanduser("~")
    if installation.library == WINDOWS:
        base = chosen or os.path.join(environ.get("APPDATA") or home, "Python")
        version = installation.settings.get("version_info") or installation.settings.get("version") or ""
        if os.name == "nt" and not version:
            version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        digits = version.split(".")[:2]
        return os.path.join(base, "Python" + "".join(digits), "site-packages") if len(digits) == 2 else None
    if "Python.framework" in (installation.base or "") and not chosen:
        version = installation.library.removeprefix("python")
        return os.path.join(home, "Library", "Python", version, "lib", "python", "site-packages")
    return os.path.join(chosen or os.path.join(home, ".local"), "lib", installation.library, "site-packages")


class EnvironmentNotFound(ObservationError):
    """There is no environment to judge. The message says what was looked for, where, and what to do."""


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

    ``gone`` is what its interpreter is a link to, when that is not there any more. ``unseen`` is the folder of its
    packages when the interpreter is of another Python, and does not look there. ``version_origin`` names the file
    that gave the version. ``startup`` is all code that runs when Python starts, the ``import`` lines of ``.pth`` files
    and the modules that customize it; nobody runs it here. ``zipped`` are files that PYTHONPATH names, from
    which Python imports if they are zip files. ``incomplete`` is None when
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
    unseen: str | None = None
    version_origin: str = ""
    startup: tuple[Startup, ...] = ()
    zipped: tuple[str, ...] = ()
    incomplete: Message | None = None
    notes: tuple[Message, ...] = ()

    @classmethod
    def of(cls, path: ImportPath, notes: Iterable[Message] = (), **fields: Any) -> "Layout":
        """Lay out an environment whose folders were collected; ``notes`` come before the problems of these."""
        return cls(
            site_packages=tuple(path.folders),
            startup=tuple(path.startup),
            zipped=tuple(path.zipped),
            incomplete=path.problems[0] if path.problems else None,
            notes=(*notes, *path.problems),
            files=path.files,
            **fields,
        )

    @property
    def has_finder(self) -> bool:
        """Return whether a line of a ``.pth`` file may add modules that are in no folder (a finder)."""
        return any(line.is_finder for line in self.startup)


#: Where images keep their environment. The first that holds a distribution is taken: what an image adds on purpose
#: comes before the Python of its distribution.
_IN_IMAGE = (
    *("opt/venv", "venv", ".venv", "app/.venv", "workspace/.venv"),
    *("opt/conda/envs/*", "opt/conda", "usr/local", "usr"),
)
_METADATA = (".dist-info", ".egg-info")


def at_path(folder: str, because: Message) -> Layout:
    """Return a bare folder: what ``pip install --target`` fills, or a site-packages folder taken for itself.

    ``.pth`` files count only in a folder that is called like a site folder; the interpreter is known only when the
    folder lies where an installation keeps its packages. Raises :class:`EnvironmentNotFound`.
    """
    files = Files(budget=Budget())
    _demand_folder(folder, because)
    if files.is_file(os.path.join(folder, "pyvenv.cfg")):
        raise EnvironmentNotFound("{}: {} is a virtual environment; use --python {}", because, folder, folder)
    path = ImportPath(files)
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        path.add_site(folder)
    else:
        path.add(folder)
    owner = _owner(folder, files)
    pair = version_from_files(owner, files) if owner is not None else None
    version, origin = pair or (Unknown(Message("a folder of packages does not say which Python uses it")), "")
    return Layout.of(
        path,
        prefix=folder,
        executable=None,
        python_version=version,
        implementation=implementation_of(owner) if owner else Unknown(Message("a folder of packages does not say it")),
        kind="path",
        because=because,
        live=True,
        version_origin=origin,
    )


def at_root(root: str, because: Message) -> Layout:
    """Return the environment inside an image's root folder. Links are resolved inside it, and nothing of it is started.

    Raises :class:`EnvironmentNotFound` when none of the usual places holds a distribution.
    """
    _demand_folder(root, because)
    files = Files(root, Budget())
    whole: list[tuple[Installation, ImportPath]] = []
    without_python: list[tuple[Installation, ImportPath]] = []
    for prefix in _prefixes(root, files):
        installation = at_prefix(prefix, files)
        if installation is None:
            continue
        path = folders_of(installation, files, environ=None, cwd=root)
        if any(name.endswith(_METADATA) for folder in path.folders for name in files.names_or_none(folder)):
            # Fedora's /usr/local holds packages for the Python of /usr, which lists them itself.
            library = installation.library or ""
            is_whole = installation.kind != "system" or has_standard_library(prefix, library, files)
            (whole if is_whole else without_python).append((installation, path))
    whole = whole or without_python
    if not whole:
        raise EnvironmentNotFound(
            "{}: no installed Python package was found below {}; looked in {}. If they are elsewhere, point "
            "at their folder with --path {}.",
            because,
            root,
            ", ".join(_IN_IMAGE),
            os.path.join(root, "DIR"),
        )
    installation, path = whole[0]
    here = "/" + os.path.relpath(installation.prefix, root).replace(os.sep, "/")
    notes: list[Message] = []
    if len(whole) > 1:
        others = ", ".join("/" + os.path.relpath(other.prefix, root).replace(os.sep, "/") for other, _ in whole[1:])
        notes.append(Message("the image has more environments, which are not judged: {}", others))
    unknown = Message("no file of the image gives it")
    if installation.library not in (None, WINDOWS):
        unknown = Message("the image's files say {}, but not which patch release", installation.library)
    version, origin = version_from_files(installation, files) or (Unknown(unknown), "")
    path.folders = [files.real(folder) for folder in path.folders]
    return Layout.of(
        path,
        notes,
        prefix=installation.prefix,
        executable=None,
        python_version=version,
        implementation=implementation_of(installation),
        kind="root",
        because=Message("{}, {} inside it", because, here),
        live=False,
        version_origin=origin,
    )


def _prefixes(root: str, files: Files) -> Iterator[str]:
    for place in _IN_IMAGE:
        prefix = os.path.join(root, *place.split("/"))
        if place.endswith("*"):
            parent = os.path.dirname(prefix)
            yield from (os.path.join(parent, name) for name in files.names_or_none(parent))
        else:
            yield prefix


def _demand_folder(folder: str, option: str) -> None:
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        raise EnvironmentNotFound("{}: {} does not exist", option, folder) from None
    except NotADirectoryError:
        raise EnvironmentNotFound("{}: {} is not a folder", option, folder) from None
    except (OSError, ValueError) as error:
        raise EnvironmentNotFound("{}: {} cannot be listed: {}", option, folder, because_of(error)) from None


def _owner(folder: str, files: Files) -> Installation | None:
    """Return the installation in whose library folder this folder lies: ``PREFIX/lib/python3.11/site-packages``."""
    library = os.path.basename(os.path.dirname(folder))
    prefix = os.path.dirname(os.path.dirname(folder))
    if library != WINDOWS:
        prefix = os.path.dirname(prefix)
    installation = at_prefix(prefix, files, library)
    return installation if installation is not None and installation.library == library else None
