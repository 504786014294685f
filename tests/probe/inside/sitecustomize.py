"""On PYTHONPATH, with ENVDOCTOR_TEST_FAULT="<name>; <name>": every Python that starts has these faults.
ENVDOCTOR_TEST_REACHED: the experiment ``arithmetic`` tries the operations alone that they can reach."""

import importlib
import os

if os.environ.get("ENVDOCTOR_TEST_FAULT"):
    import planting

    for fault in os.environ["ENVDOCTOR_TEST_FAULT"].split("; "):
        planting.plant(fault, setattr)

if os.environ.get("ENVDOCTOR_TEST_REACHED"):
    import reaching

    plain = importlib.import_module

    def import_module(name, package=None):
        module = plain(name, package)
        if name.endswith(".probes.arithmetic"):
            reaching.only_reached(module, setattr)
        return module

    importlib.import_module = import_module
