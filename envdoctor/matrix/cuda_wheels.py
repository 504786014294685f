"""How NVIDIA names its wheels: the component and the CUDA major that a distribution's name tells."""

import re

#: ``nvidia-cudnn-cu12``; from CUDA 13 on some carry no major: ``nvidia-cublas``.
_NAME = r"nvidia-([a-z0-9-]{1,60}?)(?:-cu(\d{2}))?\Z"


def component_of(name: str) -> tuple[str, str | None] | None:
    """Return ``cudnn`` and ``12`` for ``nvidia-cudnn-cu12``; None if it is not a wheel of NVIDIA's."""
    match = re.match(_NAME, name) if name.startswith("nvidia-") else None
    return (match[1], match[2]) if match else None
