"""What envdoctor says of a built environment: through its public API, with a machine that the specimen describes."""

from collections.abc import Iterable, Mapping

from environments import Built

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.judge import Policy
from envdoctor.matrix import Matrix
from envdoctor.report import Report

#: A machine on which nothing is the matter. Without GPU facts: those are a specimen's own.
MACHINE = (
    "os.arch=x86_64",
    "os.libc=glibc",
    "os.libc_version=2.35",
    "os.kernel=6.8.0",
    "os.container=absent",
    "os.wsl=false",
    "os.memory_gib=256",
    "os.shm_gib=128",
    "cuda.toolkit=absent",
    "machine.accelerators=absent",
)


def judge(
    built: Built,
    matrix: Matrix,
    assignments: Iterable[str] = (),
    *,
    environ: Mapping[str, str] = {},
    policy: Policy | None = None,
) -> Report:
    """The report of one environment. Nothing of the machine that runs the tests counts."""
    folder = built.home / "work"
    folder.mkdir(exist_ok=True)
    sources = Sources(
        **{built.option: str(built.target)},
        assignments=(*MACHINE, *assignments),
        gpu=False,
        cache=False,
        environ={"HOME": str(built.home), "PATH": "", **built.environ, **environ},
        cwd=folder,
    )
    return check(sources, matrix=matrix, policy=policy)


def told(report: Report, *severities: str) -> list[str]:
    """The findings that are shown: ``id`` or ``id item``, sorted."""
    shown = [finding for finding in report.shown() if finding.severity in severities]
    return sorted(f"{finding.id} {named(finding.item)}".strip() for finding in shown)


def named(item: Mapping[str, str]) -> str:
    """The identity of a record in a few words: its values, without the kind that the rule's own id says."""
    return " ".join(value for column, value in item.items() if column != "kind")
