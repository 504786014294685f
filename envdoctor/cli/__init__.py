"""The command line: one module a command. Each parses, calls :mod:`envdoctor.app`, and renders."""
