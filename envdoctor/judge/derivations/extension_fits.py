"""Whether the compiled extensions fit this system, this Python and this torch: facts that a rule cannot compare."""

from collections.abc import Collection, Iterator, Mapping

from envdoctor.facts.values import ABSENT, Range, Records, Unknown, Value
from envdoctor.facts.view import View
from envdoctor.judge.derivations.running import Answer, Derived, derives
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.local_tag import BuiltFor, is_own_build, said_by_tag
from envdoctor.versions.pep440 import dotted, same_start


@derives(
    "extension",
    of="extension os.arch os.libc os.libc_version os.libstdcxx os.platform pkg.* "
    "python.implementation python.version torch.cuda",
)
def extension_fits(facts: View, matrix: Matrix) -> Answer:
    """Give ``extension`` with its columns ``…_ok``; a given one stands where it cannot be computed."""
    known = facts.records("extension")
    seen = Records((), Message("compiled files were not looked at")) if known is None else known
    named = [] if seen.incomplete is None else list(_by_version(facts, matrix, {item.get("package") for item in seen}))
    items: list[dict[str, Value]] = []
    for item in (*seen, *named):
        one = View.of(item)
        fits = {
            "glibc_ok": _at_least(one, "glibc_needs", facts, "os.libc_version", "os.libc"),
            "glibcxx_ok": _at_least(one, "glibcxx_needs", facts, "os.libstdcxx"),
            "arch_ok": _arch_ok(one, facts),
            "python_ok": _python_ok(one, facts),
            # Its patch number left out; libraries of one CUDA major serve all its minor versions.
            "built_ok": _same(one, "built_torch", facts, "pkg.torch", 2),
            "cuda_ok": _same(one, "built_cuda", facts, "torch.cuda", 1),
        }
        items.append({**item, **{key: cell for key, cell in fits.items() if not isinstance(cell, Unknown)}})
        for key, cell in fits.items():
            items[-1].setdefault(key, cell)
    return Derived(Records(tuple(items), seen.incomplete), Message("compiled files")) if items else None


def _by_version(facts: View, matrix: Matrix, seen: Collection[Value | None]) -> Iterator[Mapping[str, Value]]:
    """Packages of which no file was seen, and whose version says what they were built for: by its local tag, else by
    the one torch that the release asks for. Beside a torch of a vendor or of conda, or for Ascend, it
    may be a build of its own."""
    torch, known = facts.text("pkg.torch"), matrix.ledger.package("torch")
    released = {one.version for one in known.releases} if known is not None else set()
    npu = facts.value("pkg.torch-npu")
    foreign = facts.value("environment.kind") == "conda" or isinstance(npu, (str, Range))
    plain = torch is not None and torch.partition("+")[0] in released and is_own_build(torch) and not foreign
    companions = {row["name"] for row in matrix.rows("torch-companions", "package")}
    for row in matrix.rows("torch-extensions", "package"):
        name, version = row["name"], facts.text(f"pkg.{row['name']}")
        if name in seen or version is None:
            continue
        release, _, tag = version.partition("+")
        built, says = said_by_tag(tag), Message("its local version")
        if (
            built.torch is None
            and plain
            and is_own_build(version)
            and name not in companions
            and (pin := _pin(name, release, matrix))
        ):
            built, says = built._replace(torch=pin), Message("its requirements")
        if built.torch or built.cuda:
            yield {
                "package": name,
                "version": version,
                "built_torch": built.torch or ABSENT,
                "built_cuda": built.cuda or ABSENT,
                "built_says": says,
                "built_abi": _abi(built, plain, facts),
                "unresolved": ABSENT,
            }


def _abi(built: BuiltFor, plain: bool, facts: View) -> Value:
    """The C++ ABI that its name says, where that of torch's own wheels for Linux on x86_64 is another question."""
    if built.new_abi is None or not plain:
        return ABSENT
    for key, judged in (("os.platform", "linux"), ("os.arch", "x86_64")):
        there = facts.value(key)
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


def _at_least(one: View, column: str, facts: View, key: str, libc: str | None = None) -> Value:
    """Whether the version that is there is one that the file needs, or a later one; of ``libc`` only glibc's count."""
    if one.absent(column):
        return True
    reason = one.unknown(column) or (facts.unknown(libc) if libc else None)
    if reason is not None:
        return reason
    if libc and facts.value(libc) != "glibc":
        return Unknown(Message("this system's C library is not glibc"))
    if reason := facts.unknown(key):
        return reason
    wanted, found = dotted(str(one.value(column))), dotted(str(facts.value(key)))
    return Unknown(Message("it is no dotted version")) if wanted is None or found is None else wanted <= found


def _arch_ok(one: View, facts: View) -> Value:
    """Whether one of the machines (``aarch64, x86_64``) is this one; only those of torch's Linux builds are judged."""
    if one.absent("arch"):
        return True
    if reason := one.unknown("arch") or facts.unknown("os.arch", "os.platform"):
        return reason
    machine, platform = facts.value("os.arch"), facts.value("os.platform")
    if platform != "linux" or machine not in ("x86_64", "aarch64"):
        return Unknown(Message("files for Linux are not judged on {} {}", platform, machine))
    return machine in str(one.value("arch")).split(", ")


def _python_ok(one: View, facts: View) -> Value:
    """Whether one of the tags (``cp310, cp311``) is this Python's; a module for any Python has none."""
    if one.absent("python_tag"):
        return True
    if reason := one.unknown("python_tag") or facts.unknown("python.version", "python.implementation"):
        return reason
    if facts.value("python.implementation") != "cpython":
        return Unknown(Message("only the tags of CPython are compared"))
    mine = "cp" + "".join(str(facts.value("python.version")).split(".")[:2])
    return mine in str(one.value("python_tag")).split(", ")


def _same(one: View, column: str, facts: View, key: str, parts: int) -> Value:
    """Whether what it was built for is what is there, by so many parts; absent when it names none."""
    if one.absent(column):
        return ABSENT
    if key == "torch.cuda" and facts.absent(key) and not one.unknown(column):
        return False
    if reason := one.unknown(column) or facts.unknown(key):
        return reason
    if facts.absent(key):
        return Unknown(Message("torch is not installed"))
    return same_start(str(one.value(column)), str(facts.value(key)), parts)
