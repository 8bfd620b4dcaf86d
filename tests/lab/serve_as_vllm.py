"""serve_as_vllm.py FILE OPTION...: llama.cpp's own server for a model, told how to answer as vLLM is told.

It is light enough for several on one machine. Needs the package xllamacpp; options that it has no use for are let be.
"""

import argparse
import os
import signal

import xllamacpp  # type: ignore[import-not-found]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    told, _ = parser.parse_known_args()
    parameters = xllamacpp.CommonParams()
    parameters.model.path = told.file
    parameters.hostnames, parameters.port = [told.host], told.port
    parameters.model_alias = {told.served_model_name}
    parameters.api_keys = [os.environ["VLLM_API_KEY"]]
    parameters.n_ctx, parameters.n_parallel = 2048, 4
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
