"""``python -m envdoctor``."""

# Nothing is imported before the path is clean, not even __future__: neither here nor in envdoctor/__init__.py and
# envdoctor/cli/__init__.py, which cleans it.
from envdoctor.cli.main import run

if __name__ == "__main__":
    run()
