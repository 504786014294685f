"""How the driver runs the CUDA of torch, and whether its library and its kernel module are of one version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Absent, Records, Unknown, Value
from envdoctor.knowledge.gpu_names import gpu_named, is_one_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.versions.dotted import dotted

INPUTS = (
    "driver.version",
    "driver.max_cuda",
    "driver.library",
    "driver.compat",
    "env.LD_LIBRARY_PATH",
    "torch.cuda",
    "gpu",
    "os.platform",
    "os.wsl",
)
OUTPUTS = ("driver.fits", "driver.mismatch")

Read = Callable[[str], Value]


def compute(value: Read, matrix: Matrix) -> Mapping[str, Derived]:
    """``driver.fits`` and ``driver.mismatch``."""
    found: dict[str, Derived] = {}
    mismatch = _mismatch(value)
    if mismatch is not None:
        found["driver.mismatch"] = mismatch
    cuda, driver = value("torch.cuda"), value("driver.version")
    if isinstance(cuda, Absent):
        found["driver.fits"] = Derived(ABSENT, "torch is no CUDA build")
    elif isinstance(driver, Absent):
        found["driver.fits"] = Derived(ABSENT, "no driver is loaded")
    elif isinstance(cuda, str):
        found["driver.fits"] = _fits(cuda, value, matrix)
    return found


def _mismatch(value: Read) -> Derived | None:
    library, driver = value("driver.library"), value("driver.version")
    if isinstance(library, str) and isinstance(driver, str):
        if value("os.wsl") is True:
            return None  # the driver of Windows counts its releases in another way than the library
        same = dotted(library) == dotted(driver)
        return Derived(not same, f"library {library}, kernel module {driver}")
    if isinstance(value("driver.max_cuda"), str):  # only a library that fits the module answers
        return Derived(False, "NVML answers")
    return None


def _fits(cuda: str, value: Read, matrix: Matrix) -> Derived:
    alone = _alone(cuda, value, matrix)
    compat = value("driver.compat")
    if alone.value == "no" and isinstance(compat, Unknown) and "compat" in str(value("env.LD_LIBRARY_PATH")):
        return Derived(Unknown("LD_LIBRARY_PATH names a cuda-compat folder, and what is in it is not known"), "")
    if alone.value != "no" or not isinstance(compat, str):
        return alone
    if _by_version(cuda, compat, "linux", matrix) not in ("native", "minor"):
        return alone
    may = _may_use_compat(value("gpu"), matrix, matrix.part("cuda-drivers", "forward"))
    if may is None:
        unsure = Unknown(f"whether these GPUs may use the cuda-compat package ({compat}) is not known")
        return Derived(unsure, "")
    return Derived("compat" if may else "no", f"cuda-compat {compat}, table cuda-drivers")


def _alone(cuda: str, value: Read, matrix: Matrix) -> Derived:
    """The driver without a cuda-compat package. What the driver itself says comes before its version number."""
    most, wanted = value("driver.max_cuda"), dotted(cuda)
    highest = dotted(most) if isinstance(most, str) else None
    if highest is not None and wanted is not None:
        how = "native" if highest >= wanted else "minor" if highest[0] == wanted[0] else "no"
        return Derived(how, f"driver.max_cuda {most}")
    driver = value("driver.version")
    if not isinstance(driver, str):
        return Derived(driver if isinstance(driver, Unknown) else Unknown("no driver version"), "")
    windows = value("os.platform") == "windows" or value("os.wsl") is True
    systems: tuple[str, ...] = ("windows",) if windows else ("linux",)
    if not windows and isinstance(value("os.platform"), Unknown) and driver.count(".") < 2:
        systems = ("linux", "windows")  # 528.33 is how Windows counts; Linux has such numbers only now and then
    answers = [_by_version(cuda, driver, system, matrix) for system in systems]
    if any(answer != answers[0] for answer in answers):
        return Derived(Unknown(f"driver {driver} means another thing on Linux than on Windows"), "")
    return Derived(answers[0], "table cuda-drivers")


def _by_version(cuda: str, driver: str, system: str, matrix: Matrix) -> Value:
    number, wanted = dotted(driver), dotted(cuda)
    first_numbered = dotted(matrix.part("cuda-drivers", "numbering").get("since", "")) or ()
    if number is None or wanted is None or number < first_numbered:
        return Unknown(f"driver {driver} is not numbered like those of the table")
    for row in matrix.rows("cuda-drivers"):
        # A driver that supports a later CUDA by itself supports this one too.
        if (dotted(row["key"]) or ()) >= wanted and number >= (dotted(row.get(system, "")) or (1 << 30,)):
            return "native"
    for family in matrix.rows("cuda-drivers", "family"):
        if family["major"] == str(wanted[0]):
            if number < (dotted(family[system]) or ()):
                return "no"
            if any(dotted(row["key"]) == wanted and system in row for row in matrix.rows("cuda-drivers")):
                return "minor"
    return Unknown(f"the table has no driver for CUDA {cuda}")


def _may_use_compat(gpus: Value, matrix: Matrix, rule: Mapping[str, Any]) -> bool | None:
    """Whether every GPU is of a kind for which NVIDIA supports cuda-compat; None when that is not known of one."""
    if not isinstance(gpus, Records) or not len(gpus) or gpus.incomplete is not None:
        return None
    names = (item.get("name") for item in gpus)
    answers = [_one_may(name if isinstance(name, str) else "", matrix, rule) for name in names]
    return False if False in answers else None if None in answers else True


def _one_may(name: str, matrix: Matrix, rule: Mapping[str, Any]) -> bool | None:
    known = gpu_named(name, matrix)
    kind = known.row["kind"] if known is not None else ""
    for answer, part in ((False, "refused"), (True, "allowed")):
        chosen = rule.get(part, {})
        if kind in chosen.get("kinds", ()) or is_one_of(name, chosen.get("names", ())):
            return answer
    return None
