"""``python -m envdoctor``."""

from __future__ import annotations

import sys

# Python has put the working directory first. Nothing may be imported from there: it can hold a file named like one of
# our dependencies. The package itself is already found.
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from envdoctor.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
