"""How a run ends before there is a report: one sentence on standard error, and an exit code."""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise


def ended_by(error: Exception, arguments: Sequence[str]) -> int:
    """Say what an exception means, in the language of the command line, and return the exit code."""
    from envdoctor.report.color import choose_lang

    given = [two for one, two in pairwise(arguments) if one == "--lang"]
    given += [argument.partition("=")[2] for argument in arguments if argument.startswith("--lang=")]
    lang = choose_lang(
        given[-1] if given else os.environ.get("ENVDOCTOR_LANG", "auto"), os.environ, sys.stderr.encoding
    )
    from envdoctor.app.errors import JobError, UsageProblem
    from envdoctor.matrix.matrix import MatrixError

    if isinstance(error, (UsageProblem, MatrixError)):
        return failed(error.message, 2, lang=lang)
    if isinstance(error, JobError):
        return failed(error.message, 3, lang=lang)
    if os.environ.get("ENVDOCTOR_DEBUG"):
        raise error
    kind = type(error).__name__
    return failed(
        f"envdoctor itself failed ({kind}: {error}). Please report it; ENVDOCTOR_DEBUG=1 shows where it happened.", 3
    )


def failed(message: str, code: int, *, usage: str = "", lang: str = "en") -> int:
    """Say why, and return the exit code."""
    from envdoctor.system.clean import clean
    from envdoctor.system.language import sentence

    lines = [f"envdoctor: {clean(sentence(lang, message))}"]
    if usage:
        lines.append(clean(usage))
    try:
        print("\n".join(lines), file=sys.stderr)
    except (OSError, ValueError):  # a full disk, or closed: the exit code still answers
        pass
    return code
