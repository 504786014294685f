"""``envdoctor fix``: the environment is whole then, or what it was before, to the byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from small_index import SmallIndex
from uv import find_uv_bin

DAY = "2026-01-01"
#: Has every name.
NAMES = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return object
"""
#: transformers as it refuses another tokenizers than the one that it was made for.
TRANSFORMERS = f"""{NAMES}
import tokenizers
if tokenizers.__version__ != "0.23.3":
    raise ImportError("tokenizers 0.23.3 is required, but found " + tokenizers.__version__)
"""
#: Stands in for uv. What it does behind the real one: an installer that fails, or during which envdoctor is ended.
FAULTY = """#!/bin/sh
case "$*" in *--dry-run*) exec "{uv}" "$@" ;; esac
echo damage >> "{site}/tokenizers/__init__.py"  # into the file that the cache shares
"{uv}" "$@" 2> /dev/null
rm -r "{site}"/tokenizers-*
echo new > "{site}/new.txt"
{fault}
"""


def wheel(index: SmallIndex, name: str, version: str, members: dict[str, str], requires: tuple[str, ...] = ()) -> None:
    """Add a wheel that an installer accepts."""
    info = f"{name}-{version}.dist-info"
    members = {**members, f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    listed = [*members, f"{info}/METADATA", f"{info}/RECORD"]
    index.wheel(
        name, version, DAY, {**members, f"{info}/RECORD": "".join(f"{one},,\n" for one in listed)}, requires=requires
    )


@pytest.fixture(scope="module")
def index():
    """A broken pair, and the release that ends it."""
    with SmallIndex() as small:
        pair(small, "0.23.3")
        yield small


@pytest.fixture(scope="module")
def uv() -> str:
    return find_uv_bin()


@pytest.fixture
def variables(index, tmp_path, uv) -> dict[str, str]:
    """For uv and pip: the small index and nothing else."""
    return {
        "UV_DEFAULT_INDEX": index.url,
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        "UV_NO_CONFIG": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index.url,
        "PIP_FIND_LINKS": "",
        "PIP_CACHE_DIR": str(tmp_path / "pip-cache"),
        "PATH": f"{Path(uv).parent}{os.pathsep}{os.environ['PATH']}",
    }


@pytest.fixture
def broken(variables, tmp_path, uv) -> Path:
    """An environment whose transformers cannot be imported, made by uv; files are links to its cache."""
    folder = tmp_path / "env"
    install(folder, variables, uv)
    return folder


def pair(index: SmallIndex, version: str) -> None:
    """Add transformers and a tokenizers that does not go with it, what holds this transformers in its place, and the
    tokenizers that the plan names, which calls itself ``version``."""
    wheel(index, "tokenizers", "0.19.1", {"tokenizers/__init__.py": f'__version__ = "0.19.1"{NAMES}'})
    wheel(index, "tokenizers", "0.23.3", {"tokenizers/__init__.py": f'globals()["__version__"] = "{version}"{NAMES}'})
    members = {"transformers/__init__.py": TRANSFORMERS}
    wheel(index, "transformers", "5.23.0", members, requires=("tokenizers>=0.23.1,<0.24",))
    wheel(index, "training", "1.0", {"training.py": ""}, requires=("transformers>=5.20",))


def install(folder: Path, variables: dict[str, str], uv: str, tokenizers: str = "0.19.1") -> None:
    env = {**os.environ, **variables}
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True, env=env)
    packages = ["--no-deps", "--link-mode", "hardlink", "training", "transformers", f"tokenizers=={tokenizers}"]
    python = folder / "bin" / "python"
    subprocess.run([uv, "pip", "install", "-q", "--python", python, *packages], check=True, env=env)


@pytest.fixture
def fix(run, variables):
    def start(environment: Path, *arguments, **environ: str):
        options = ("--python", environment / "bin" / "python", "--no-gpu", "--no-config")
        return run("fix", *options, *arguments, env={**variables, **environ})

    return start


def site(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3*/site-packages")
    return found


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Kind, mode, time and content of everything in a folder."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def imported(environment: Path) -> bool:
    command = [environment / "bin" / "python", "-B", "-c", "import transformers"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def faulty(folder: Path, environment: Path, uv: str, fault: str) -> str:
    """A PATH on which uv is followed by a fault."""
    folder.mkdir()
    (folder / "uv").write_text(FAULTY.format(uv=uv, site=site(environment), fault=fault))
    (folder / "uv").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_what_failed_to_be_imported_works_and_nothing_else_is_changed(fix, broken, tmp_path):
    before, cached = snapshot(broken), snapshot(tmp_path / "uv-cache")
    assert not imported(broken)
    result = fix(broken, "--yes")
    assert result.code == 0, result.err
    assert "ends: tokenizers-outside-transformers-window: " in result.out
    assert "tokenizers 0.19.1 -> 0.23.3" in result.out
    assert "fails now: import transformers" in result.out and "statements that failed work now" in result.out
    assert imported(broken)
    after = snapshot(broken)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert all("tokenizers" in path or path.endswith(("site-packages", ".lock")) for path in changed - {"."})
    kept = snapshot(tmp_path / "uv-cache")
    assert {path: kept[path] for path in cached if path.endswith(".py")}.items() <= cached.items()
    again = fix(broken, "--yes", "--lang", "zh")
    assert (again.code, again.out) == (0, "无需更改：没有已知错误\n")


def test_pip_fixes_what_pip_installed(fix, variables, tmp_path):
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    for path in Path(import_module("pip").__path__[0]).parent.glob("pip*"):  # the tests' own, which is made at once
        (site(environment) / path.name).symlink_to(path)
    packages = ["--no-deps", "training", "transformers", "tokenizers==0.19.1"]
    command = [environment / "bin" / "python", "-m", "pip", "install", "-q", *packages]
    subprocess.run(command, check=True, env={**os.environ, **variables}, capture_output=True)
    result = fix(environment, "--yes", PIP_TARGET=str(tmp_path / "elsewhere"))
    assert result.code == 0, result.out + result.err
    assert " -m pip install tokenizers==0.23.3" in result.out
    assert imported(environment) and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("arguments", "code"), [(["--dry-run"], 1), ([], 2)])
def test_nothing_is_changed_before_it_is_confirmed(fix, broken, arguments, code):
    before = snapshot(broken)
    result = fix(broken, *arguments)
    assert result.code == code and "tokenizers==0.23.3" in result.out
    assert ("give --yes" in result.err) == (code == 2)
    assert snapshot(broken) == before


@pytest.mark.parametrize(
    "fault", ["exit 1", "kill -INT $PPID; exec tail -f /dev/null", "kill -TERM $PPID; exec tail -f /dev/null"]
)
def test_after_a_failure_or_an_interrupt_everything_is_as_it_was(fix, broken, uv, tmp_path, fault):
    (site(broken) / "link").symlink_to("tokenizers")
    (site(broken) / "tokenizers" / "mine.txt").write_text("my own")
    (site(broken) / "tokenizers" / "mine.txt").chmod(0o640)
    before = snapshot(broken)
    result = fix(broken, "--yes", PATH=faulty(tmp_path / "bin", broken, uv, fault))
    assert result.code == 1 and "the environment is as it was before" in result.out
    assert snapshot(broken) == before


def test_after_a_kill_the_next_fix_puts_it_back_and_goes_on(fix, broken, uv, tmp_path):
    before = snapshot(broken)
    path = faulty(tmp_path / "bin", broken, uv, "kill -KILL $PPID; exec tail -f /dev/null")
    assert fix(broken, "--yes", PATH=path).code == -signal.SIGKILL
    damaged = snapshot(broken)
    assert damaged != before
    seen = fix(broken, "--dry-run")
    assert seen.code == 1 and "an interrupted fix left this environment half changed: uv pip install" in seen.out
    assert snapshot(broken) == damaged
    asked = fix(broken)
    assert asked.code == 2 and "give --yes" in asked.err and snapshot(broken) == damaged
    (tmp_path / "bin" / "uv").write_text("#!/bin/sh\nexit 1\n")
    repaired = fix(broken, "--yes", PATH=path)
    assert repaired.code == 3 and "the environment is as it was before" in repaired.out
    assert snapshot(broken) == before
    assert fix(broken, "--yes").code == 0 and imported(broken)


def test_what_is_not_whole_then_is_put_back(run, variables, tmp_path, uv, fix):
    """The release that the plan names has another fault, which only the real import shows."""
    with SmallIndex() as other:
        pair(other, "0.23.3-broken")
        mine = {**variables, "UV_DEFAULT_INDEX": other.url, "UV_CACHE_DIR": str(tmp_path / "other-cache")}
        install(tmp_path / "env", mine, uv)
        before = snapshot(tmp_path / "env")
        result = fix(tmp_path / "env", "--yes", **mine)
    assert result.code == 1 and "not whole: import transformers and " in result.out
    assert snapshot(tmp_path / "env") == before


def test_a_recipe_is_changed_only_with_write_and_only_in_its_line(fix, variables, tmp_path, uv):
    install(tmp_path / "env", variables, uv, "0.23.3")
    recipe = tmp_path / "train.yaml"
    text = "stage: sft\nfinetuning_type: full\nload_best_model_at_end: true  # the best\nsave_strategy: steps\n"
    recipe.write_text(text)
    shown = fix(tmp_path / "env", "--yes", "--recipe", "train.yaml")
    assert shown.code == 1 and recipe.read_text() == text
    assert "-load_best_model_at_end: true  # the best\n+load_best_model_at_end: false  # the best\n" in shown.out
    assert "the recipe is changed with --write only" in shown.out
    written = fix(tmp_path / "env", "--yes", "--recipe", "train.yaml", "--write")
    assert written.code == 0, written.out + written.err
    assert recipe.read_text() == text.replace("true ", "false ")


def test_a_package_of_the_users_own_is_not_replaced(fix, broken):
    (info,) = site(broken).glob("tokenizers-*.dist-info")
    for url in ("file:///home/me/tokenizers", "https://me:secret@example.org/tokenizers-0.19.1-py3-none-any.whl"):
        (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {}}))
        before = snapshot(broken)
        result = fix(broken, "--yes")
        assert result.code == 3 and result.err.startswith("envdoctor: tokenizers is installed from ")
        assert result.err.count("\n") == 1 and "secret" not in result.err and snapshot(broken) == before


def test_a_python_that_the_system_manages_is_left_alone(fix, broken, tmp_path):
    """A copy of the interpreter whose library has the marker of PEP 668, and the packages of the environment."""
    base = Path(os.path.realpath(sys.executable))
    library = Path(os.__file__).parent
    system = tmp_path / "system"
    (system / "bin").mkdir(parents=True)
    (system / "lib" / library.name).mkdir(parents=True)
    shutil.copy2(base, system / "bin" / "python")
    for entry in library.iterdir():
        if entry.name not in ("site-packages", "dist-packages"):
            (system / "lib" / library.name / entry.name).symlink_to(entry)
    (system / "lib" / library.name / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    shutil.copytree(site(broken), system / "lib" / library.name / "site-packages")
    before = snapshot(system)
    result = fix(system, "--yes")
    assert result.code == 3 and "the system manages this Python (PEP 668)" in result.err and result.err.count("\n") == 1
    assert snapshot(system) == before


def test_an_environment_that_cannot_be_written_is_refused(fix, broken):
    mount = ["mount", "--bind", broken, broken]
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if as_root:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("root may write everything here")
        subprocess.run(["mount", "-o", "remount,ro,bind", broken], check=True)
    else:
        site(broken).chmod(0o555)
    try:
        result = fix(broken, "--yes")
    finally:
        if as_root:
            subprocess.run(["umount", broken], check=True)
        else:
            site(broken).chmod(0o755)
    assert result.code == 3 and "cannot be written" in result.err and result.err.count("\n") == 1


def test_a_full_disk_is_put_back(fix, variables, uv, tmp_path):
    """The disk fills while the installer works: what is new goes first, so that the rest has room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    try:
        install(disk / "env", {**variables, "UV_LINK_MODE": "copy"}, uv)
        before = snapshot(disk / "env")
        fill = f'head -c 200000000 /dev/zero > "{site(disk / "env")}/filling"; exit 1'
        path = faulty(tmp_path / "bin", disk / "env", uv, fill)
        result = fix(disk / "env", "--yes", PATH=path, UV_LINK_MODE="copy")
        assert result.code == 1 and "the environment is as it was before" in result.out
        assert snapshot(disk / "env") == before
        (disk / "large").write_bytes(bytes(70_000_000))
        full = fix(disk / "env", "--yes", UV_LINK_MODE="copy")
        assert full.code == 3 and "the copy needs " in full.err and snapshot(disk / "env") == before
    finally:
        subprocess.run(["umount", disk], check=True)


def test_the_python_that_runs_envdoctor_is_fixed_like_any_other(variables, tmp_path, uv):
    environment = tmp_path / "env"
    install(environment, variables, uv)
    own = tmp_path / "own"
    own.mkdir()
    for name in ("envdoctor", "click", "packaging", "huggingface_hub", "jinja2", "markupsafe", "resolvelib", "yaml"):
        (own / name).symlink_to(Path(import_module(name).__path__[0]))
    (site(environment) / "own.pth").write_text(f"{own}\n")
    command = [environment / "bin" / "python", "-m", "envdoctor", "fix", "--yes", "--no-gpu", "--no-config"]
    env = {**os.environ, **variables, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert imported(environment)


def test_a_file_that_is_planted_in_place_of_the_copy_moves_nothing(fix, broken, tmp_path):
    """The environment is what is judged: a journal in it names no file outside."""
    folder, outside = broken / ".envdoctor-fix", tmp_path / "outside.txt"
    outside.write_text("mine")
    for roots, path in (
        ([str(broken)], str(outside)),
        ([str(tmp_path)], str(outside)),
        ([str(broken)], f"{broken}/../outside.txt"),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "files").mkdir(parents=True, mode=0o700)
        folder.chmod(0o700)
        (folder / "files" / "0").write_text("theirs")
        entry = ["file", 0o644, 6, 1, 1, 1, 0, 0, ""]
        (folder / "journal.json").write_text(
            json.dumps({"roots": roots, "about": [], "files": [path], "entries": {path: entry}})
        )
        assert fix(broken, "--yes").code == 0
        assert outside.read_text() == "mine" and not folder.exists()
