"""The environment variables of children: few for a program that is asked or parses, the user's own in the target."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: What a program may need to start at all: shared libraries of module systems, pyenv's choice of version, CUDA's place.
_PASSED_ON = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT"),
    *("PYENV_ROOT", "PYENV_VERSION", "CUDA_HOME", "CUDA_PATH"),
)
#: They say that the process is one of many that a launcher started, which a child is not: it would wait for the others.
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_LAUNCHERS = ("TORCHELASTIC_", "ACCELERATE_", "OMPI_COMM_WORLD_", "PMI_", "FSDP_", "NODE_RANK", "DEEPSPEED_")
#: Lists of folders that may be given relative to the working directory.
_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a program needs to start, and nothing else of the caller's: no tokens, no proxies, no PYTHON variables."""
    kept = {name: environ[name] for name in _PASSED_ON if name in environ}
    return {"PATH": os.defpath, **kept, **_OFFLINE, "LC_ALL": "C.UTF-8"}


def target_environment(
    environ: Mapping[str, str], *, cwd: str, scratch: str, device: str, visible: str | None
) -> dict[str, str]:
    """The variables for a child in the target that works in the folder ``scratch``.

    PYTHONPATH, LD_LIBRARY_PATH, the allocator's configuration and everything else stay as they are, because an
    experiment in a cleaned environment is one on another environment. Relative folders are resolved against ``cwd``,
    which itself is taken off PYTHONPATH. Files of compilers and temporary files go to ``scratch``; nothing is asked of
    the network; one thread computes. ``visible`` names the devices to be seen (None: as the user has it) in CUDA's
    variable; that of HIP stays as it is. On the device ``cpu`` none is seen, or a library would take one unasked.
    """
    kept = {name: value for name, value in environ.items() if name not in _LAUNCHER and not name.startswith(_LAUNCHERS)}
    for name in _PATHS:
        if name in kept:
            folders = [os.path.join(cwd, folder) for folder in kept[name].split(os.pathsep) if folder]
            if name == "PYTHONPATH":
                folders = [folder for folder in folders if os.path.normpath(folder) != os.path.normpath(cwd)]
            kept[name] = os.pathsep.join(folders)
    kept.update(
        _OFFLINE,
        PYTHONSAFEPATH="1",
        PYTHONUTF8="1",
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        TOKENIZERS_PARALLELISM="false",
        TRANSFORMERS_OFFLINE="1",
        DO_NOT_TRACK="1",
        TRANSFORMERS_VERBOSITY="error",
        WANDB_MODE="disabled",
        TORCHINDUCTOR_CACHE_DIR=os.path.join(scratch, "inductor"),
        TRITON_CACHE_DIR=os.path.join(scratch, "triton"),
        TMPDIR=scratch,
        TEMP=scratch,
        TMP=scratch,
    )
    if device == "cpu":
        kept.update(CUDA_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="")
    elif visible is not None:
        kept["CUDA_VISIBLE_DEVICES"] = visible
    return kept
