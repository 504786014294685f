"""``python -m envdoctor``."""

# Nothing is imported before the path is clean, not even __future__: neither here nor in envdoctor/__init__.py.
import sys

# Python has put the working directory first. Nothing may be imported from there: it can hold a file named like one of
# our dependencies. The package itself is already found.
if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]

from envdoctor.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
