"""Compiled extensions: whether they fit this system, this Python and this torch; whether they can be built here, and
which of DeepSpeed's ops would be."""

import re
from collections.abc import Collection, Iterator, Mapping

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Range, Records, Unknown, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import no_wheel, wanted_here, with_wheel
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted, same_start
from envdoctor.versions.releases import lies_in
from envdoctor.versions.requirement import BuiltFor, is_own_build, said_by_tag
from envdoctor.versions.wheel_tags import TARGET_KEYS

_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}(?=\+|\.post|\Z)")
#: Names of DeepSpeed's own optimizers in its configuration, and the ops behind them. Other names (adamw_torch) are
#: optimizers of torch or of another package.
_FUSED = {"adam": "fused_adam", "adamw": "fused_adam", "fusedadam": "fused_adam", "lamb": "fused_lamb"}
_FUSED["lion"] = "fused_lion"


@derives(
    "build.needed",
    of="pkg.deepspeed recipe.framework recipe.zero_stage recipe.optimizer recipe.offload_optimizer build.compiled",
)
def _build_needed(facts: View, matrix: Matrix) -> Answer:
    """List which of DeepSpeed's ops the recipe uses and this machine would compile at their first use.

    An offloaded optimizer becomes DeepSpeedCPUAdam (or Adagrad, Lion); accelerate replaces torch's optimizers alike.
    OpenRLHF takes DeepSpeed's FusedAdam whatever the optimizer is called. Ops are not in DeepSpeed's package unless
    it was built with DS_BUILD_OPS, so an op that is not known to be compiled counts as not compiled.
    """
    if facts.absent("pkg.deepspeed") or facts.absent("recipe.zero_stage"):
        return Derived((), Message("the run does not use DeepSpeed"))
    if reason := facts.unknown("pkg.deepspeed", "recipe.zero_stage", "recipe.offload_optimizer"):
        return reason
    offload, name = facts.text("recipe.offload_optimizer") or "", (facts.text("recipe.optimizer") or "").lower()
    if offload.lower() not in ("none", ""):
        op: str | None = "cpu_adagrad" if "adagrad" in name else "cpu_lion" if "lion" in name else "cpu_adam"
    elif facts.value("recipe.framework") == "openrlhf":
        op = "fused_adam"
    elif reason := facts.unknown("recipe.optimizer"):
        return reason
    else:
        op = _FUSED.get(name)
    if op is None or op in (facts.words("build.compiled") or ()):
        return Derived((), Message("recipe, build.compiled"))
    return Derived((op,), "recipe.zero_stage, recipe.offload_optimizer, recipe.optimizer")


@derives("cuda.toolkit_fits", of="cuda.toolkit torch.cuda")
def _toolkit_fits(facts: View, matrix: Matrix) -> Answer:
    """Compare nvcc with torch's CUDA: of the same, of another minor or of another major release."""
    toolkit, cuda = facts.text("cuda.toolkit"), facts.text("torch.cuda")
    if toolkit is None:
        return None
    if facts.absent("torch.cuda"):
        return Unknown(Message("torch is not a CUDA build"))
    nvcc, torch = dotted(toolkit), dotted(cuda or "")
    if nvcc is None or torch is None:
        return facts.unknown("torch.cuda") or Unknown(Message("a version that cannot be read"))
    fits = "major" if nvcc[0] != torch[0] else "same" if nvcc[:2] == torch[:2] else "minor"
    return Derived(fits, Message("nvcc {}, torch for CUDA {}", toolkit, cuda))


@derives("build.gcc_min", of="pkg.torch")
def _gcc_min(facts: View, matrix: Matrix) -> Answer:
    """Give the oldest gcc that has the C++ standard of torch's headers, by the table cxx-standards; a pre-release may
    be from before a change of its release."""
    torch = facts.text("pkg.torch")
    if torch is None:
        return None
    release = _RELEASE.match(torch)
    if release is None:
        return Unknown(Message("torch {} is not a release", torch))
    row = next((row for row in matrix.rows("cxx-standards") if lies_in(release[0], row["key"])), None)
    unlisted = Unknown(Message("the headers of torch {} are not in the table cxx-standards", torch))
    return unlisted if row is None else Derived(row["gcc"], f"cxx-standards: {row['key']}")


@derives("build.gcc_max", of="cuda.toolkit")
def _gcc_max(facts: View, matrix: Matrix) -> Answer:
    """Give the newest gcc that this nvcc takes."""
    toolkit = facts.text("cuda.toolkit")
    if toolkit is None:
        return None
    minor = ".".join(toolkit.split(".")[:2])
    newest = next((row["max_gcc"] for row in matrix.rows("cuda-compilers") if row["key"] == minor), None)
    unlisted = Unknown(Message("CUDA {} is not in the table cuda-compilers", minor))
    return unlisted if newest is None else Derived(newest, f"cuda-compilers: {minor}")


@derives("build.gcc_fits", of="build.gcc build.gcc_max build.gcc_min cuda.toolkit")
def _gcc_fits(facts: View, matrix: Matrix) -> Answer:
    """Compare gcc with both bounds: ``too-old`` and ``too-new`` each need one known bound; ``yes`` needs both, or the
    absence of nvcc."""
    gcc = facts.text("build.gcc")
    if gcc is None:
        return None
    have = dotted(gcc)
    if have is None:
        return Unknown(Message("gcc {} is not a version", gcc))
    low, high = (dotted(facts.text(key) or "") for key in ("build.gcc_min", "build.gcc_max"))
    if low is not None and have[0] < low[0]:
        fits = "too-old"
    elif high is not None and have[0] > high[0]:
        fits = "too-new"
    elif low is None:
        unknown = Unknown(Message("the oldest gcc for torch's headers is not known"))
        return facts.unknown("build.gcc_min") or unknown
    elif high is None and not facts.absent("cuda.toolkit"):
        return facts.unknown("build.gcc_max") or Unknown(Message("the newest gcc for nvcc is not known"))
    else:
        fits = "yes"
    return Derived(fits, "build.gcc, build.gcc_max, build.gcc_min")


@derives(
    "extension",
    of=f"extension os.libstdcxx pkg.* python.version torch.cuda {' '.join(TARGET_KEYS)}",
)
def _extension_fits(facts: View, matrix: Matrix) -> Answer:
    """Give ``extension`` with its columns ``…_ok``; a given cell stands where it cannot be computed."""
    observed = facts.records("extension")
    files = Records((), Message("compiled files were not looked at")) if observed is None else observed
    rows = [] if files.incomplete is None else list(_by_version(facts, matrix, {item.get("package") for item in files}))
    items: list[dict[str, Value]] = []
    for item in (*files, *rows):
        extension = View.of(item)
        fits = {
            "glibc_ok": _at_least(extension, "glibc_needs", facts, "os.libc_version", "os.libc"),
            "glibcxx_ok": _at_least(extension, "glibcxx_needs", facts, "os.libstdcxx"),
            "arch_ok": _arch_ok(extension, facts),
            "python_ok": _python_ok(extension, facts),
            # Its patch number left out; libraries of one CUDA major serve all its minor versions.
            "built_ok": _same(extension, "built_torch", facts, "pkg.torch", 2),
            "cuda_ok": _same(extension, "built_cuda", facts, "torch.cuda", 1),
        }
        computed = {key: cell for key, cell in fits.items() if key not in item or not isinstance(cell, Unknown)}
        nearest = _for_this_torch(extension, facts, matrix) if fits["built_ok"] is False else ABSENT
        items.append({**item, **computed, "for_torch": nearest})
    return Derived(Records(tuple(items), files.incomplete), Message("compiled files")) if items else None


def _for_this_torch(extension: View, facts: View, matrix: Matrix) -> Value:
    """Return the next release that has a wheel for this torch, else the last one before it; absent where none is known,
    or the same release has one."""
    name, version = extension.text("package") or "", (extension.text("version") or "").partition("+")[0]
    situation = wanted_here(facts.value)
    if situation is None or not isinstance(no_wheel(matrix, name, version, situation), str):
        return ABSENT
    older, newer = with_wheel(matrix, name, version, situation)
    return newer or older or ABSENT


def _by_version(facts: View, matrix: Matrix, packages: Collection[Value | None]) -> Iterator[Mapping[str, Value]]:
    """Yield packages whose files were not seen, and whose version says what they were built for: by its local tag, else
    by the one torch that the release requires. Beside a torch of a vendor or of conda, or for Ascend, it may be a build
    of its own."""
    torch, torches = facts.text("pkg.torch"), matrix.ledger.package("torch")
    released = {release.version for release in torches.releases} if torches is not None else set()
    npu = facts.value("pkg.torch-npu")
    foreign = facts.value("environment.kind") == "conda" or isinstance(npu, (str, Range))
    plain = torch is not None and torch.partition("+")[0] in released and is_own_build(torch) and not foreign
    companions = {row["name"] for row in matrix.rows("torch-companions", "package")}
    for row in matrix.rows("torch-extensions", "package"):
        name, version = row["name"], facts.text(f"pkg.{row['name']}")
        if name in packages or version is None:
            continue
        release, _, tag = version.partition("+")
        built, says = said_by_tag(tag), Message("its local version")
        if built.torch is None and plain and is_own_build(version) and name not in companions:
            # The one release of torch that this one asks for; none where it takes several.
            package = matrix.ledger.package(name)
            required = package.requires(release) if package is not None else ()
            specifiers = {requirement.specifiers for requirement in required if requirement.name == "torch"}
            pin = re.fullmatch(r"==([^,*+]*)(?:\+[^,*]*)?", specifiers.pop()) if len(specifiers) == 1 else None
            if pin and pin[1]:
                built, says = built._replace(torch=pin[1]), Message("its requirements")
        if built.torch or built.cuda:
            yield {
                **{"package": name, "version": version},
                **{"built_torch": built.torch or ABSENT, "built_cuda": built.cuda or ABSENT},
                **{"built_says": says, "built_abi": _abi(built, plain, facts), "unresolved": ABSENT},
            }


def _abi(built: BuiltFor, plain: bool, facts: View) -> Value:
    """Return the C++ ABI that its local tag names; absent unless torch is its own wheel for Linux on x86_64."""
    if built.new_abi is None or not plain:
        return ABSENT
    for key, judged in (("os.platform", "linux"), ("os.arch", "x86_64")):
        value = facts.value(key)
        if value != judged:
            return value if isinstance(value, Unknown) else ABSENT
    return "cxx11" if built.new_abi else "pre-cxx11"


def _at_least(extension: View, column: str, facts: View, key: str, libc: str | None = None) -> Value:
    """Return whether the version of ``key`` is the one in the column or a later one; with ``libc`` only for glibc."""
    if extension.absent(column):
        return True
    reason = extension.unknown(column) or (facts.unknown(libc) if libc else None)
    if reason is not None:
        return reason
    if libc and facts.value(libc) != "glibc":
        return Unknown(Message("this system's C library is not glibc"))
    if reason := facts.unknown(key):
        return reason
    lowest, version = dotted(str(extension.value(column))), dotted(str(facts.value(key)))
    return Unknown(Message("it is no dotted version")) if lowest is None or version is None else lowest <= version


def _arch_ok(extension: View, facts: View) -> Value:
    """Return whether one of the machines (``aarch64, x86_64``) is this one; only torch's for Linux are judged."""
    if extension.absent("arch"):
        return True
    if reason := extension.unknown("arch") or facts.unknown("os.arch", "os.platform"):
        return reason
    machine, platform = facts.value("os.arch"), facts.value("os.platform")
    if platform != "linux" or machine not in ("x86_64", "aarch64"):
        return Unknown(Message("files for Linux are not judged on {} {}", platform, machine))
    return machine in str(extension.value("arch")).split(", ")


def _python_ok(extension: View, facts: View) -> Value:
    """Return whether one of the tags (``cp310, cp311``) is this Python's; a module for any Python has none."""
    if extension.absent("python_tag"):
        return True
    if reason := extension.unknown("python_tag") or facts.unknown("python.version", "python.implementation"):
        return reason
    if facts.value("python.implementation") != "cpython":
        return Unknown(Message("only the tags of CPython are compared"))
    tag = "cp" + "".join(str(facts.value("python.version")).split(".")[:2])
    return tag in str(extension.value("python_tag")).split(", ")


def _same(extension: View, column: str, facts: View, key: str, parts: int) -> Value:
    """Return whether it was built for the version of ``key``, by so many parts; absent when it names none."""
    if extension.absent(column):
        return ABSENT
    if key == "torch.cuda" and facts.absent(key) and not extension.unknown(column):
        return False
    if reason := extension.unknown(column) or facts.unknown(key):
        return reason
    if facts.absent(key):
        return Unknown(Message("torch is not installed"))
    return same_start(str(extension.value(column)), str(facts.value(key)), parts)
