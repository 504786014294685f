"""This machine: operating system, variables, limits, NVIDIA driver, GPUs, CUDA toolkit and compilers."""
