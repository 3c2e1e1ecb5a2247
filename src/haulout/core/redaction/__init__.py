"""Hides secrets in text that people will read: logs, archives, configuration files, error messages. Pure.

    redact(text)                      # by name (`password=…`) and by shape (`ghp_…`): for logs and objects
    redact_recognizable(text)         # by shape only: for messages that must stay readable
    redact_values(text, secrets)      # secrets whose values are known
    FileRedactor(keys, values)        # a file that may not be valid YAML: hides more than it must

Nothing else in the product decides what looks like a secret. Every function takes time linear in the length of its
input: texts come from other people's programs. When in doubt it hides: a hidden word costs a question, a shown
password costs a rotation.
"""

from haulout.core.redaction.assignments import redact, redact_arguments
from haulout.core.redaction.files import FileRedactor, is_secret_option
from haulout.core.redaction.names import is_secret_name
from haulout.core.redaction.patterns import redact_known_patterns
from haulout.core.redaction.values import MIN_VALUE_LENGTH, REDACTED, redact_values, replace_value

__all__ = [
    "MIN_VALUE_LENGTH",
    "REDACTED",
    "FileRedactor",
    "is_secret_name",
    "is_secret_option",
    "redact",
    "redact_arguments",
    "redact_known_patterns",
    "redact_values",
    "replace_value",
]
