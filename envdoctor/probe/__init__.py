"""Experiments on this machine: probes run in bounded children of the target interpreter, and are judged here."""
