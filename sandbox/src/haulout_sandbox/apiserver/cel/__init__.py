"""CEL, the Common Expression Language, as Kubernetes uses it in rules about objects.

    rule = compiled("self.minReplicas <= self.replicas", ("self",))
    rule.evaluate({"self": {"minReplicas": 1, "replicas": 3}})      # True

`parser` parses, `functions` has the functions, `values` the operators, and `program` turns a tree into nested Python
functions, made once and called for every object. Names and functions are checked when an expression is compiled, types
when it is evaluated. There are no optionals, unsigned numbers and bytes, and nothing is counted or limited.

This package knows nothing of the API server: values are plain Python.
"""

from haulout_sandbox.apiserver.cel.parser import CelSyntaxError
from haulout_sandbox.apiserver.cel.program import Program, compile_expression
from haulout_sandbox.apiserver.cel.values import CelError

__all__ = ["CelError", "CelSyntaxError", "Program", "compile_expression"]
