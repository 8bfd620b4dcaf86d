"""serve_gguf.py FILE PORT: llama.cpp's own server for a model, until stdin ends. Needs the package xllamacpp."""

import sys

import xllamacpp  # type: ignore[import-not-found]

if __name__ == "__main__":
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.port = int(sys.argv[2])  # of 127.0.0.1
    parameters.n_ctx, parameters.n_parallel = 2048, 2
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()
