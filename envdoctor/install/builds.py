"""Which build of a release would be installed here, and whether none is known for this Python, system, CUDA, GPU."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Absent, Unknown, Value
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.released_wheels import Gap, no_wheel, release_named, wanted_here
from envdoctor.text.message import Message
from envdoctor.versions.dotted import dotted
from envdoctor.versions.pep440 import base_release, is_named_by, satisfies


class Build(NamedTuple):
    """A build of torch. ``cuda`` is absent for a CPU build and None when it is not known; ``tag`` is the local tag to
    ask for (``cu118``, ``cpu``), None when the package index offers this build by itself. ``forbidden`` says why there
    is none for this environment."""

    cuda: str | Absent | None = None
    tag: str | None = None
    forbidden: Message | None = None


def torch_row(version: str, matrix: Matrix) -> Mapping[str, Any] | None:
    """The row of the table torch-builds for a version."""
    return next((row for row in matrix.rows("torch-builds") if is_named_by(version, row["key"])), None)


def no_build(name: str, version: str, facts: FactSet, matrix: Matrix) -> Message | None:
    """Why this release cannot be installed for the judged Python and system, None when nothing says so. For which torch
    it was compiled is not asked: installers bring along what it requires."""
    python = facts.text("python.version")
    base = base_release(python) if python is not None else None
    release = release_named(matrix, name, version)
    asked = [release.requires_python] if release is not None else []
    row = torch_row(version, matrix) if name == "torch" else None
    if row is not None:
        column = "python_aarch64" if facts.value("os.arch") == "aarch64" else "python"
        asked += [row.get(column) or row["python"]] if row.get("python") else []
    for specifier in asked:
        if base is not None and not satisfies(base, specifier):
            return Message("{} {} has no build for Python {} ({})", name, version, python, specifier)
    wanted = wanted_here(facts.value)
    gap = no_wheel(matrix, name, version, wanted._replace(torch=None)) if wanted is not None else None
    return Message("{} {} has no wheel for {}", name, version, gap.lacks) if isinstance(gap, Gap) else None


def torch_build(version: str, facts: FactSet, matrix: Matrix) -> Build:
    """The build of torch ``version`` to take in place of the installed one: for the same CUDA when there is one, else
    for the newest that the driver and every GPU can use."""
    current = facts.value("torch.cuda")
    if facts.get("torch.cuda").source == "assumed":
        return Build()  # PyPI's, as that of the new release will be
    row = torch_row(version, matrix)
    if current is ABSENT:
        # CPU builds exist for every release; ROCm builds are not in the table.
        if not facts.absent("torch.hip"):
            return Build()
        return Build(ABSENT, None if row is None or _default(row, facts) is ABSENT else "cpu")
    if not isinstance(current, str) or dotted(current) is None or row is None:
        return Build()
    reasons = []
    # A build runs on every driver of its CUDA major or a later one; when the driver is not known, it is one for the
    # present build.
    driver = facts.text("driver.max_cuda")
    limit = _numbers(driver if driver is not None and dotted(driver) else current)[0]
    fitting = [cuda for cuda in map(str, row.get("cuda", [])) if _numbers(cuda)[0] <= limit]
    for cuda in sorted(fitting, key=lambda cuda: (cuda == current, _numbers(cuda)), reverse=True):
        unsupported = _gpu_forbids(version, cuda, facts, matrix)
        if unsupported is None:
            return Build(cuda, None if _default(row, facts) == cuda else "cu" + cuda.replace(".", ""))
        reasons.append(unsupported)
    if not reasons and "cuda" in row.get("open", []):
        return Build()  # the table does not know every build of this release
    return Build(forbidden=reasons[0] if reasons else Message("torch {} has no build for CUDA {}", version, current))


def torch_build_for(version: str, cuda: str, facts: FactSet, matrix: Matrix) -> Build:
    """The build of torch ``version`` for CUDA ``cuda``, by its tag: the same release may be installed as another build,
    which a bare version would keep."""
    row = torch_row(version, matrix)
    if row is None or cuda not in [str(build) for build in row.get("cuda", [])]:
        return Build(forbidden=Message("torch {} has no build for CUDA {}", version, cuda))
    unsupported = _gpu_forbids(version, cuda, facts, matrix)
    if unsupported is not None:
        return Build(forbidden=unsupported)
    return Build(cuda, "cu" + cuda.replace(".", ""))


def builds_of(version: str, facts: FactSet, matrix: Matrix) -> Iterator[Build]:
    """The builds of a release for a new environment: PyPI's, which every mirror has, then those of the wheel index, the
    newest CUDA first. A machine that is known to have no GPU takes the one for the CPU."""
    row, gpus = torch_row(version, matrix) or {}, facts.records("gpu")
    usual = _default(row, facts)
    bare = facts.absent("gpu") or (gpus is not None and not gpus.items and gpus.incomplete is None)
    if bare and usual is not ABSENT:
        yield Build(ABSENT, "cpu")
        return
    yield Build(usual if isinstance(usual, (str, Absent)) else None)
    for cuda in sorted(map(str, row.get("cuda", ())), key=_numbers, reverse=True):
        if cuda != usual and usual is not ABSENT:
            yield torch_build_for(version, cuda, facts, matrix)


def _default(row: Mapping[str, Any], facts: FactSet) -> Value:
    """CUDA of the build that PyPI gives on this platform; Linux on x86_64 when nothing else is known."""
    if facts.value("os.platform") in ("windows", "darwin"):
        return ABSENT
    column = "pypi_cuda_aarch64" if facts.value("os.arch") == "aarch64" else "pypi_cuda"
    cuda = row.get(column)
    return ABSENT if cuda == "absent" else cuda if isinstance(cuda, str) else Unknown(Message("not in the table"))


def _gpu_forbids(version: str, cuda: str, facts: FactSet, matrix: Matrix) -> Message | None:
    if facts.value("os.platform") in ("windows", "darwin"):
        return None  # the table holds Linux builds
    from envdoctor.knowledge.gpu_code import kernels

    machine = facts.text("os.arch") or "x86_64"
    for row in matrix.rows("torch-archs"):
        if row["cuda"] != cuda or row["machine"] != machine or not is_named_by(version, row["key"]):
            continue
        for gpu in facts.each("gpu"):
            cc = gpu.text("cc")
            if cc and dotted(cc) is not None and kernels(cc, row["archs"], cuda, matrix) == "none":
                return Message("torch {} for CUDA {} has no kernels for compute capability {}", version, cuda, cc)
    return None


def _numbers(text: str) -> tuple[int, ...]:
    return dotted(text) or (0,)
