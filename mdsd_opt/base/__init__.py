"""What every room stands on: arrays, distributions, files, threads, kernels of numba."""
