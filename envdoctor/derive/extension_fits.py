"""Whether the compiled extensions fit this system, this Python and this torch: facts that a rule cannot compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from envdoctor.derive.running import Answer, Derived, derives
from envdoctor.facts.values import ABSENT, Absent, Range, Records, Unknown, Value
from envdoctor.facts.view import View
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted, same_start
from envdoctor.versions.local_tag import BuiltFor, is_own_build, said_by_tag

_NOT_KNOWN = Unknown("not known")


@derives(
    "extension",
    of="extension os.arch os.libc os.libc_version os.libstdcxx os.platform pkg.* "
    "python.implementation python.version torch.cuda",
)
def extension_fits(facts: View, matrix: Matrix) -> Answer:
    """``extension`` with its columns ``…_ok``; a given one stands where it cannot be computed."""
    value = facts.value
    extensions = value("extension")
    seen = extensions if isinstance(extensions, Records) else Records((), "compiled files were not looked at")
    named = [] if seen.incomplete is None else list(_by_version(value, matrix, {item.get("package") for item in seen}))
    if not len(seen) and not named:
        return None
    items: list[dict[str, Value]] = []
    for item in (*seen, *named):
        fits = {
            "glibc_ok": _glibc_ok(item.get("glibc_needs", _NOT_KNOWN), value),
            "glibcxx_ok": _glibcxx_ok(item.get("glibcxx_needs", _NOT_KNOWN), value),
            "arch_ok": _arch_ok(item.get("arch", _NOT_KNOWN), value),
            "python_ok": _python_ok(item.get("python_tag", _NOT_KNOWN), value),
            "built_ok": _built_ok(item.get("built_torch", _NOT_KNOWN), value("pkg.torch")),
            "cuda_ok": _cuda_ok(item.get("built_cuda", _NOT_KNOWN), value("torch.cuda")),
        }
        items.append({**item, **{key: cell for key, cell in fits.items() if not isinstance(cell, Unknown)}})
        for key, cell in fits.items():
            items[-1].setdefault(key, cell)
    return Derived(Records(tuple(items), seen.incomplete), "compiled files")


def _by_version(
    value: Callable[[str], Value], matrix: Matrix, seen: Collection[Value | None]
) -> Iterator[Mapping[str, Value]]:
    """Packages of which no file was seen, and whose version says what they were built for: by its local tag, else by
    the one torch that the release asks for. Beside a torch of a vendor or of conda, or for Ascend, it
    may be a build of its own."""
    torch, known = value("pkg.torch"), matrix.ledger.package("torch")
    released = {one.version for one in known.releases} if known is not None else set()
    foreign = value("environment.kind") == "conda" or isinstance(value("pkg.torch-npu"), (str, Range))
    plain = isinstance(torch, str) and torch.partition("+")[0] in released and is_own_build(torch) and not foreign
    companions = {row["name"] for row in matrix.rows("torch-companions", "package")}
    for row in matrix.rows("torch-extensions", "package"):
        name, version = row["name"], value(f"pkg.{row['name']}")
        if name in seen or not isinstance(version, str):
            continue
        release, _, tag = version.partition("+")
        built, says = said_by_tag(tag), "its local version"
        if (
            built.torch is None
            and plain
            and is_own_build(version)
            and name not in companions
            and (pin := _pin(name, release, matrix))
        ):
            built, says = built._replace(torch=pin), "its requirements"
        if built.torch or built.cuda:
            yield {
                "package": name,
                "version": version,
                "built_torch": built.torch or ABSENT,
                "built_cuda": built.cuda or ABSENT,
                "built_says": says,
                "built_abi": _abi(built, plain, value),
                "unresolved": ABSENT,
            }


def _abi(built: BuiltFor, plain: bool, value: Callable[[str], Value]) -> Value:
    """The C++ ABI that its name says, where that of torch's own wheels for Linux on x86_64 is another question."""
    if built.new_abi is None or not plain:
        return ABSENT
    for key, judged in (("os.platform", "linux"), ("os.arch", "x86_64")):
        there = value(key)
        if there != judged:
            return there if isinstance(there, Unknown) else ABSENT
    return "cxx11" if built.new_abi else "pre-cxx11"


def _pin(name: str, release: str, matrix: Matrix) -> str | None:
    """The one release of torch that a release of a package asks for; None where it takes several."""
    package = matrix.ledger.package(name)
    asked = {
        one.specifiers for one in (package.requires(release) if package is not None else ()) if one.name == "torch"
    }
    pin = asked.pop() if len(asked) == 1 else ""
    return pin[2:].partition("+")[0] if pin.startswith("==") and not set(",*") & set(pin) else None


def _glibc_ok(needs: Value, value: Callable[[str], Value]) -> Value:
    if isinstance(needs, Absent):
        return True
    libc = value("os.libc")
    if isinstance(needs, Unknown) or isinstance(libc, Unknown):
        return needs if isinstance(needs, Unknown) else libc
    if libc != "glibc":
        return Unknown("this system's C library is not glibc")
    return _at_least(value("os.libc_version"), needs)


def _glibcxx_ok(needs: Value, value: Callable[[str], Value]) -> Value:
    return True if isinstance(needs, Absent) else _at_least(value("os.libstdcxx"), needs)


def _at_least(there: Value, needs: Value) -> Value:
    for one in (needs, there):
        if isinstance(one, Unknown):
            return one
    wanted, found = dotted(str(needs)), dotted(str(there))
    if wanted is None or found is None:
        return Unknown("it is no dotted version")
    return wanted <= found


def _arch_ok(archs: Value, value: Callable[[str], Value]) -> Value:
    """Whether one of the machines (``aarch64, x86_64``) is this one; only those of torch's Linux builds are judged."""
    if isinstance(archs, Absent):
        return True
    machine, platform = value("os.arch"), value("os.platform")
    for one in (archs, machine, platform):
        if isinstance(one, Unknown):
            return one
    if platform != "linux" or machine not in ("x86_64", "aarch64"):
        return Unknown(f"files for Linux are not judged on {platform} {machine}")
    return machine in str(archs).split(", ")


def _python_ok(tags: Value, value: Callable[[str], Value]) -> Value:
    """Whether one of the tags (``cp310, cp311``) is this Python's; a module for any Python has none."""
    if isinstance(tags, Absent):
        return True
    version, implementation = value("python.version"), value("python.implementation")
    for one in (tags, version, implementation):
        if isinstance(one, Unknown):
            return one
    if implementation != "cpython":
        return Unknown("only the tags of CPython are compared")
    mine = "cp" + "".join(str(version).split(".")[:2])
    return mine in str(tags).split(", ")


def _built_ok(built: Value, torch: Value) -> Value:
    """Whether the release it was built for is the installed one, its patch number left out; absent when it names
    none."""
    if isinstance(built, Absent):
        return ABSENT
    return _same(built, torch, 2, "torch is not installed")


def _cuda_ok(built: Value, cuda: Value) -> Value:
    """Whether the CUDA major it was built for is torch's: libraries of one major serve all its minor versions."""
    if isinstance(built, Absent):
        return ABSENT
    if isinstance(cuda, Absent) and not isinstance(built, Unknown):
        return False
    return _same(built, cuda, 1, "torch is not installed")


def _same(built: Value, there: Value, parts: int, otherwise: str) -> Value:
    for one in (built, there):
        if isinstance(one, Unknown):
            return one
    if isinstance(there, Absent):
        return Unknown(otherwise)
    return same_start(str(built), str(there), parts)
