"""Reading files of somebody else: below a root as after chroot, whatever the links say and whenever they appear."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envdoctor.system import Budget, Files, Spent, because_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links are those of POSIX")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image with one file of its own, beside a secret."""
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "image" / "etc").mkdir(parents=True)
    (tmp_path / "image" / "etc" / "own").write_text("inside")
    return tmp_path / "image"


@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("a", "/etc/own", "a"),
        ("a", "../../../etc/own", "a"),
        ("d", "/", "d/etc/own"),
        ("d", "../..", "d/d/./etc/../etc/own"),
        ("etc/up", "..", "etc/up/etc/up/etc/own"),
    ],
)
def test_links_are_resolved_inside_the_root(root, link, target, path):
    (root / link).symlink_to(target)
    assert Files(str(root)).head(str(root / path), 99) == b"inside"


@pytest.mark.parametrize("target", ["../secret", "/secret", "{out}", "../../{out}", "a", "gone", "etc/own/x", "\udcff"])
def test_what_is_not_inside_is_not_there(root, target):
    os.symlink(target.format(out=root.parent / "secret"), root / "a")
    with pytest.raises(OSError):
        Files(str(root)).head(str(root / "a"), 99)
    assert not Files(str(root)).is_file(str(root / "a"))


@pytest.mark.parametrize("path", ["/etc/passwd", "{root}/../secret", "{root}x", "{root}/a\0b", ""])
def test_a_path_from_elsewhere_is_refused(root, path):
    with pytest.raises(OSError):
        Files(str(root)).head(path.format(root=root), 99)


@pytest.mark.skipif(os.readlink not in os.supports_dir_fd, reason="needs the calls of POSIX that take a folder")
@pytest.mark.parametrize("exchanged", ["etc", "etc/own"])
def test_what_is_exchanged_for_a_link_while_it_is_read_is_not_followed(root, monkeypatch, exchanged):
    """Between the look at a component and its opening, the attacker's moment."""
    (root.parent / "own").write_text("outside")
    look = os.readlink

    def look_and_lose(path, **where):
        try:
            return look(path, **where)
        finally:
            place = root / exchanged
            if path == place.name and not place.is_symlink():
                place.rename(root / "moved")
                place.symlink_to(root.parent if exchanged == "etc" else root.parent / "own")

    monkeypatch.setattr(os, "readlink", look_and_lose)
    with pytest.raises(OSError):
        Files(str(root)).head(str(root / "etc" / "own"), 99)


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
@pytest.mark.parametrize("below", [True, False])
def test_only_regular_files_are_read_and_nothing_waits(root, kind, below):
    place = root / "odd"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place = Path("/dev/zero")
    files = Files(str(root)) if below else Files()
    with pytest.raises(OSError):
        files.head(str(place), 99)
    with pytest.raises(OSError):
        files.whole(str(place), 99)


#: A blank and a dot at the end say "this must be a folder", which no reader asks for.
parts = st.lists(st.sampled_from(["etc", "own", "..", "a", "b", "c", "./etc", "/a"]), min_size=1)


#: Says of each path that it is given whether it leads to a file that says "inside".
ORACLE = """
import os, sys
os.chroot(sys.argv[1])
for line in sys.stdin:
    try:
        with open(line[:-1], "rb") as file:
            found = file.read() == b"inside"
    except OSError:
        found = False
    print(int(found), flush=True)
"""


@pytest.fixture
def chrooted(root: Path) -> Iterator[Callable[[str], bool]]:
    """Whether a path leads to the file of the image after chroot: one process, for a fork copies this one each time."""
    command = [sys.executable, "-I", "-S", "-c", ORACLE, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as oracle:
        asked, answers = oracle.stdin, oracle.stdout
        assert asked is not None and answers is not None

        def ask(path: str) -> bool:
            asked.write(path + "\n")
            return {"1\n": True, "0\n": False}[answers.readline()]

        yield ask


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="the oracle is chroot itself")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.lists(st.tuples(st.sampled_from(["", "/"]), parts), max_size=3), path=parts)
def test_it_reads_what_chroot_would(root, chrooted, links, path):
    for name in ("a", "b", "c"):
        (root / name).unlink(missing_ok=True)
    for name, (start, target) in zip("abc", links, strict=False):
        os.symlink(start + "/".join(target), root / name)
    inner = "/" + "/".join(path)
    try:
        found = Files(str(root)).head(str(root) + inner, 99) == b"inside"
    except OSError:
        found = False
    assert found is chrooted(inner)


def test_everything_that_is_read_is_counted_and_the_end_is_final(root):
    path = str(root / "etc" / "own")
    few = Files(str(root), Budget(steps=5))
    with pytest.raises(Spent, match="too many files and entries"):
        for _ in range(6):
            few.status(path)
    with pytest.raises(Spent, match="too many files and entries"):
        few.is_file(path)
    with pytest.raises(Spent, match="too many"):
        Files(budget=Budget(steps=1)).names(str(root / "etc"))
    sized = Files(budget=Budget(size=10))
    assert sized.head(path, 99) == b"inside"
    with pytest.raises(Spent, match="too large"):
        sized.head(path, 99)
    with pytest.raises(Spent, match="too large"):
        sized.is_file(path)
    slow = Files(budget=Budget(seconds=-1))
    with pytest.raises(Spent, match="too long"):
        for _ in range(1000):
            slow.status(path)


# --- parts of a file -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    return str(tmp_path / "a.bin")


def reason(call: object, *arguments: object) -> str:
    with pytest.raises(OSError) as caught:
        call(*arguments)  # type: ignore[operator]
    return because_of(caught.value)


def test_ranges_are_read_whole_in_any_order(file: str) -> None:
    assert Files().ranges(file, [(8, 2), (0, 3), (10, 0)]) == [b"89", b"012", b""]
    assert reason(Files().ranges, file, [(0, 1), (8, 3)]) == "it ends before byte 11"


@pytest.mark.parametrize("content", [b"", b"a\nb", b"\n" * 70_000, b"a" * 300_000, b"torch/lib/x.so,,1\n" * 9000])
def test_a_long_list_comes_in_pieces_of_whole_lines(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list").write_bytes(content)
    *pieces, last = list(Files().lines(str(tmp_path / "list"), 1 << 20)) or [b""]
    assert b"".join([*pieces, last]) == content
    assert all(len(piece) < 200_000 for piece in (*pieces, last))
    assert b"\n" not in content or all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(Files().lines(str(tmp_path / "list"), 70_001)) == content[:70_001]


def test_a_file_above_the_limit_is_not_read(file: str) -> None:
    assert Files().whole(file, 10) == b"0123456789"
    assert reason(Files().whole, file, 9) == "it is larger than 9 bytes"
    assert Files().head(file, 4) == b"0123"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_folders_are_no_files_and_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, why in (
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path, "a folder"),
    ):
        assert reason(Files().whole, str(place), 1 << 20) == f"it is {why}"
        assert reason(Files().ranges, str(place), [(0, 1)]) == f"it is {why}"


def test_a_name_that_no_file_can_have_is_an_error_like_any_other() -> None:
    said = reason(Files().head, "a\0b", 1)
    assert said == reason(Files().whole, "a\0b", 1) and "embedded null" in said  # newer Pythons say more around it
