"""``envdoctor.guard()``: the check as the first line of a training script, never stopped by a fault of envdoctor."""

import gc
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envdoctor.report.report import Report

_FAIL_ON = ("error", "warning", "note")


class Stopped(SystemExit):
    """Findings at the gate: the script ends with exit code 1, as ``envdoctor check`` does. ``report`` has them."""

    def __init__(self, report: "Report") -> None:
        super().__init__(1)
        self.report = report


def guard(
    model: str | None = None,
    recipe: str | Sequence[str] = (),
    *,
    code: str | Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    fail_on: str | None = "error",
) -> "Report | None":
    """Judge the interpreter that runs this script, for a model and a recipe, before anything expensive is done.

    ``model``, ``recipe`` and ``code`` are as for ``envdoctor check``; missing ones are those of the project's
    configuration, and so are the ignores. ``settings`` are facts such as ``{"recipe.batch_size": 4}``. ``fail_on`` is
    the lowest severity that stops the script; None only reports. The first process of a machine (``LOCAL_RANK``) writes
    the findings to standard error; every process judges for itself.

    Raises :class:`Stopped` for findings at the gate, ``ValueError`` for a wrong ``fail_on``. Any other problem, such as
    an unknown model or a fault of envdoctor, is written, and the script goes on; then None is returned, or the
    incomplete report. Exceptions of the script's own signal handlers are raised here, and nothing more is written.
    """
    if fail_on is not None and fail_on not in _FAIL_ON:
        raise ValueError(f"fail_on={fail_on!r}: {', '.join(_FAIL_ON)} or None is expected")
    reports: list[Report] = []
    awaited = True

    def judge() -> None:
        try:
            reports.append(_checked(model, recipe, code, settings or {}, fail_on))
            text = _text(reports[0])
        except (Exception, SystemExit) as error:
            text = f"envdoctor: not checked, the script goes on: {type(error).__name__}: {error}"
        if awaited:
            say(text)

    collecting = gc.isenabled()
    gc.disable()  # a run is short and frees nothing, and beside torch a collection looks at millions of objects
    # Python runs signal handlers in the main thread: what they raise cannot be taken there for a fault of envdoctor.
    thread = threading.Thread(target=judge, name="envdoctor.guard", daemon=True)
    try:
        thread.start()
        while thread.is_alive():  # a signal that comes right before a wait is heard when the wait ends
            thread.join(0.1)
    except RuntimeError as error:
        if thread.ident is not None:
            raise
        say(f"envdoctor: not checked, the script goes on: {error}")
    finally:
        awaited = False
        if collecting:
            gc.enable()
    if reports and reports[0].exit_code == 1:
        raise Stopped(reports[0])
    return reports[0] if reports else None


def _checked(
    model: str | None,
    recipe: str | Sequence[str],
    code: str | Sequence[str],
    settings: Mapping[str, object],
    fail_on: str | None,
) -> "Report":
    from envdoctor.app.check import check
    from envdoctor.app.configuration import Configuration, find_configuration, listed, load_configuration
    from envdoctor.app.facts import Sources, working_directory
    from envdoctor.matrix.matrix import load_matrix

    here = working_directory()
    path = find_configuration(here) if here is not None else None
    configuration = load_configuration(path) if path is not None else Configuration()
    sources = Sources(
        model=model if model is not None else configuration.model,
        recipe=listed(recipe) or [str(file) for file in configuration.recipe],
        code=listed(code) or [str(file) for file in configuration.code],
        configured=configuration.assignments,
        configured_in=path.name if path is not None else "configuration",
        assignments=list(settings.items()),
    )
    policy = configuration.policy(fail_on=fail_on or "error")
    return check(sources, policy=policy, matrix=load_matrix(configuration.matrix), exit_zero=fail_on is None)


def _text(report: "Report") -> str:
    """Return the findings in full if the script stops, else a line each, and what could not be judged."""
    from envdoctor.report.terminal_report import concise
    from envdoctor.report.terminal_report import render as in_full

    if report.exit_code == 1:
        return in_full(report) + "envdoctor: the script stops here; envdoctor.guard(fail_on=None) only tells"
    state = "not all could be judged, " if report.status != "complete" else ""
    unjudged = "".join(f"not judged: {text}\n" for text in report.unjudged)
    return f"{unjudged}{concise(report)}envdoctor: {state}the script goes on"


def say(text: str) -> None:
    """Write to standard error, which may be closed or refuse the text."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        try:
            print(text.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):
            pass
