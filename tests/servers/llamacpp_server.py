"""llama.cpp's server, from the wheel xllamacpp, on a free port of this machine.

    python tests/servers/llamacpp_server.py MODEL [DRAFT] [--probabilistic] [--n-min N] ...

Prints its address and serves until its standard input ends; with a --port, until it is ended.
"""

from __future__ import annotations

import argparse
import signal
import sys

import xllamacpp


def main() -> None:
    """Start it and wait."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("draft", nargs="?")
    parser.add_argument("--probabilistic", action="store_true")
    parser.add_argument("--n-max", type=int, default=4)
    parser.add_argument("--n-min", type=int, default=0)
    parser.add_argument("--p-min", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.hostnames = ["127.0.0.1"]
    params.port = asked.port
    params.n_ctx = 4096
    params.n_parallel = 4
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.warmup = False
    params.endpoint_metrics = params.endpoint_props = True
    if asked.draft is not None:
        speculative = params.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft = speculative.draft
        draft.mparams.path = asked.draft
        draft.n_gpu_layers = 0
        draft.probabilistic = asked.probabilistic
        draft.n_max, draft.n_min, draft.p_min = asked.n_max, asked.n_min, asked.p_min
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    if asked.port:
        signal.pause()
    sys.stdin.read()


if __name__ == "__main__":
    main()
