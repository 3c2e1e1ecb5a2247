"""CEL, the Common Expression Language, as Kubernetes uses it for validation rules.

    rule = compile_expression("self.minReplicas <= self.replicas", ("self",))
    rule.evaluate({"self": {"minReplicas": 1, "replicas": 3}})      # True

`parser` parses, `functions` has the functions, `values` the operators, and `program` compiles a tree into nested Python
functions, once, to be called for every object. Names and functions are checked at compile time, types at evaluation.
Optionals, unsigned numbers and bytes are not supported, and there is no cost limit.

This package does not depend on the API server: values are plain Python.
"""

from haulout_sandbox.apiserver.cel.parser import CelSyntaxError
from haulout_sandbox.apiserver.cel.program import Program, compile_expression
from haulout_sandbox.apiserver.cel.values import CelError

__all__ = ["CelError", "CelSyntaxError", "Program", "compile_expression"]
