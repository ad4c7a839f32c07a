"""CUDA kernels as PTX, the code that a device gets, run on the host with every access checked."""
