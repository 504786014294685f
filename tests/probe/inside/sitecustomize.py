"""On PYTHONPATH, with ENVDOCTOR_TEST_FAULT=<name>: every Python that starts has that fault. ENVDOCTOR_TEST_REACHED: the
experiment ``arithmetic`` tries the operations alone that the fault can reach."""

import importlib
import os

if os.environ.get("ENVDOCTOR_TEST_FAULT"):
    import planting

    planting.plant(os.environ["ENVDOCTOR_TEST_FAULT"], setattr)

if os.environ.get("ENVDOCTOR_TEST_REACHED"):
    import reaching

    plain = importlib.import_module

    def import_module(name, package=None):
        module = plain(name, package)
        if name.endswith(".probes.arithmetic"):
            reaching.only_reached(module, setattr)
        return module

    importlib.import_module = import_module
