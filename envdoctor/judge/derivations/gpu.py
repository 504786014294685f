"""The GPUs: how many, their memory, what torch has for each; and how the driver runs the CUDA of torch."""

from functools import cache

from envdoctor.facts.factset import View
from envdoctor.facts.values import ABSENT, Range, Records, Unknown, Value
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.matrix import gpu_code
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import dotted

#: Later than every CUDA version of the tables.
_NEWEST = "99"
_NOT_KNOWN = Unknown(Message("not known of this GPU"))
#: The answer about one GPU: kernels and gap.
_Answer = tuple[Value, Value]


@derives("gpu.count", of="gpu")
def _gpu_count(facts: View, matrix: Matrix) -> Answer:
    """Count the GPUs when the list is complete."""
    if facts.absent("gpu"):
        return Derived(0, Message("there is no GPU"))
    gpus = facts.records("gpu")
    return None if gpus is None or gpus.incomplete is not None else Derived(len(gpus), Message("the list of GPUs"))


@derives("gpu", of="gpu pkg.torch torch.cuda torch.arch_list os.platform os.arch")
def _gpu_kernels(facts: View, matrix: Matrix) -> Answer:
    """Give ``cc`` by name, and ``kernels``, ``gap``, ``taken_gib``; a given cell stands where it cannot be computed.
    Give ``memory_gib`` by the advertised size, where nothing better is known. A driver keeps some of it to itself, up
    to a tenth. A product that is sold in several sizes has a range of them."""
    gpus = facts.records("gpu")
    if not gpus:
        return None
    kernels_of = cache(lambda cc: _kernels(cc, facts, matrix))
    items: list[dict[str, Value]] = []
    for gpu in gpus:
        item = dict(gpu)
        view = View.of(item)
        cc, entry = item.get("cc", _NOT_KNOWN), gpu_code.gpu_named(view.text("name") or "", matrix)
        if entry is not None and view.unknown("memory_gib"):
            sizes = (entry.memory,) if entry.memory is not None else tuple(entry.row.get("memory_gb", ()))
            if sizes:
                several = Range(" or ".join(map(str, sizes)), sizes)
                item["memory_gib"] = sizes[0] if len(sizes) == 1 else several
        if isinstance(cc, Unknown):
            cc = item["cc"] = str(entry.row["cc"]) if entry is not None else cc
        answers = kernels_of(cc) if isinstance(cc, str) else (_NOT_KNOWN, _NOT_KNOWN)
        for column, cell in zip(("kernels", "gap"), answers, strict=True):
            if not isinstance(cell, Unknown) or column not in item:
                item[column] = cell
        total, free = view.number("memory_gib"), view.number("free_gib")
        if total is not None and free is not None:
            item["taken_gib"] = round(max(0.0, total - free), 3)
        items.append(item)
    return Derived(Records(tuple(items), gpus.incomplete), Message("the GPUs that were found, and torch's build"))


def _neither(reason: Message) -> _Answer:
    return Unknown(reason), Unknown(reason)


def _kernels(cc: str, facts: View, matrix: Matrix) -> _Answer:
    """Return ``kernels`` and ``gap`` for a compute capability."""
    cuda, torch, listed = facts.text("torch.cuda"), facts.text("pkg.torch"), facts.words("torch.arch_list")
    unknown = facts.unknown("torch.cuda")
    if listed and unknown:
        # The list settles it, but for the few GPUs whose exceptions end with a CUDA version.
        answers = {_of_list(cc, listed, version, matrix) for version in (None, _NEWEST)}
        return answers.pop() if len(answers) == 1 else (unknown, unknown)
    if cuda is None:
        return _neither(unknown.reason if unknown else Message("torch is no CUDA build"))
    if listed is not None:
        return _of_list(cc, listed, cuda, matrix)
    if facts.absent("pkg.torch"):
        return _neither(Message("torch is not installed"))
    platform, machine = facts.text("os.platform"), facts.text("os.arch")

    def of_builds(release: str | None) -> set[_Answer]:
        rows = gpu_code.arch_lists(release, cuda, platform, machine, matrix)
        return {_of_list(cc, tuple(row["archs"]), cuda, matrix) for row in rows}

    answers = of_builds(torch)
    if len(answers) == 1:
        return answers.pop()
    if answers:
        return _neither(Message("torch builds for CUDA {} differ", cuda))
    # The compiler of this CUDA may have no code for the GPU, whoever built torch. PTX is for later GPUs only, so
    # it can save no older one. It could save a newer one: that is told of a nightly build only, when no release with
    # this CUDA version runs there.
    device, (oldest, newest) = gpu_code.capability(cc), gpu_code.compiler_range(cuda, matrix)
    if device is not None and oldest is not None and device < oldest:
        return "none", "older"
    is_newer = device is not None and newest is not None and device[0] > newest[0]
    if is_newer and gpu_code.is_nightly(torch) and of_builds(None) == {("none", "newer")}:
        return "none", "newer"
    return _neither(Message("no table has the build of torch for CUDA {}", cuda))


def _of_list(cc: str, archs: tuple[str, ...], cuda: str | None, matrix: Matrix) -> _Answer:
    kind, device = gpu_code.kernels(cc, archs, cuda, matrix), gpu_code.capability(cc)
    if kind is None:
        return _neither(Message("the architectures {} are not understood", ", ".join(archs)[:100]))
    if kind != "none":
        return kind, ABSENT
    digits = [arch.partition("_")[2].rstrip("af") for arch in archs]
    capabilities = sorted((int(digit[:-1]), int(digit[-1])) for digit in digits if digit.isdecimal() and len(digit) > 1)
    if device is None or not capabilities:
        return kind, "between"
    return kind, "newer" if device > capabilities[-1] else "older" if device < capabilities[0] else "between"


@derives("driver.mismatch", of="driver.version driver.max_cuda driver.library os.wsl")
def _driver_mismatch(facts: View, matrix: Matrix) -> Answer:
    """Tell whether the driver's library and its kernel module are of two versions."""
    library, driver = facts.text("driver.library"), facts.text("driver.version")
    if library is not None and driver is not None:
        if facts.value("os.wsl") is True:
            return None  # the driver of Windows counts its releases in another way than the library
        return Derived(dotted(library) != dotted(driver), Message("library {}, kernel module {}", library, driver))
    # Only a library that fits the module answers.
    return None if facts.text("driver.max_cuda") is None else Derived(False, Message("NVML answers"))


@derives(
    "driver.fits",
    of="driver.version driver.max_cuda driver.compat env.LD_LIBRARY_PATH torch.cuda gpu os.platform os.wsl",
)
def _driver_fits(facts: View, matrix: Matrix) -> Answer:
    """Tell how the driver runs the CUDA of torch."""
    if facts.absent("torch.cuda"):
        return Derived(ABSENT, Message("torch is no CUDA build"))
    if facts.absent("driver.version"):
        return Derived(ABSENT, Message("no driver is loaded"))
    cuda = facts.text("torch.cuda")
    if cuda is None:
        return None
    alone, compat = _alone(cuda, facts, matrix), facts.text("driver.compat")
    if not isinstance(alone, Derived) or alone.value != "no":
        return alone
    if facts.unknown("driver.compat") and "compat" in str(facts.value("env.LD_LIBRARY_PATH")):
        return Unknown(Message("LD_LIBRARY_PATH names a cuda-compat folder, and what is in it is not known"))
    if compat is None or _by_version(cuda, compat, "linux", matrix) not in ("native", "minor"):
        return alone
    gpus = facts.records("gpu")
    # NVIDIA supports cuda-compat for some kinds of GPUs; every one must be of them.
    may = {_may_use_compat(gpu.text("name") or "", matrix) for gpu in facts.each("gpu")}
    if not gpus or gpus.incomplete is not None or (None in may and False not in may):
        return Unknown(Message("whether these GPUs may use the cuda-compat package ({}) is not known", compat))
    return Derived("no" if False in may else "compat", Message("cuda-compat {}, table cuda-drivers", compat))


def _alone(cuda: str, facts: View, matrix: Matrix) -> Derived | Unknown:
    """Judge the driver without a cuda-compat package. Its own answer comes before its version number."""
    most, version = facts.text("driver.max_cuda"), dotted(cuda)
    highest = dotted(most) if most is not None else None
    if highest is not None and version is not None:
        how = "native" if highest >= version else "minor" if highest[0] == version[0] else "no"
        return Derived(how, f"driver.max_cuda {most}")
    driver = facts.text("driver.version")
    if driver is None:
        return facts.unknown("driver.version") or Unknown(Message("no driver version"))
    windows = facts.value("os.platform") == "windows" or facts.value("os.wsl") is True
    systems: tuple[str, ...] = ("windows",) if windows else ("linux",)
    if not windows and facts.unknown("os.platform") and driver.count(".") < 2:
        systems = ("linux", "windows")  # 528.33 is how Windows counts; Linux has such numbers only now and then
    answers = [_by_version(cuda, driver, system, matrix) for system in systems]
    if any(answer != answers[0] for answer in answers):
        return Unknown(Message("driver {} means another thing on Linux than on Windows", driver))
    newest = _by_version(cuda, f"{driver}.999", systems[0], matrix) if driver.isdecimal() else answers[0]
    if newest != answers[0]:
        if answers[0] == "no":
            return Derived("some", Message("table cuda-drivers"))
        return Unknown(Message("driver {} is a branch, and its releases differ: give the whole version", driver))
    return Derived(answers[0], Message("table cuda-drivers"))


def _by_version(cuda: str, driver: str, system: str, matrix: Matrix) -> Value:
    number, version = dotted(driver), dotted(cuda)
    first_numbered = dotted(matrix.part("cuda-drivers", "numbering").get("since", "")) or ()
    if number is None or version is None or number < first_numbered:
        return Unknown(Message("driver {} is not numbered like those of the table", driver))
    for row in matrix.rows("cuda-drivers"):
        # A driver that supports a later CUDA by itself supports this one too.
        if (dotted(row["key"]) or ()) >= version and number >= (dotted(row.get(system, "")) or (1 << 30,)):
            return "native"
    for family in matrix.rows("cuda-drivers", "family"):
        if family["major"] == str(version[0]):
            if number < (dotted(family[system]) or ()):
                return "no"
            if any(dotted(row["key"]) == version and system in row for row in matrix.rows("cuda-drivers")):
                return "minor"
    return Unknown(Message("the table has no driver for CUDA {}", cuda))


def _may_use_compat(name: str, matrix: Matrix) -> bool | None:
    entry = gpu_code.gpu_named(name, matrix)
    kind = entry.row["kind"] if entry is not None else ""
    for answer, part in ((False, "refused"), (True, "allowed")):
        chosen = matrix.part("cuda-drivers", "forward").get(part, {})
        if kind in chosen.get("kinds", ()) or gpu_code.is_one_of(name, chosen.get("names", ())):
            return answer
    return None
