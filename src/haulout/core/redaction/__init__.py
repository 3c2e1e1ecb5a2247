"""Redaction: hides secrets in text for people, such as logs, archives, configuration files and error messages. Pure.

    redact(text)                      # by name (`password=…`) and by pattern (`ghp_…`): for logs and objects
    redact_known_patterns(text)       # by pattern only: for messages that must stay readable
    redact_values(text, secrets)      # secrets whose values are known
    FileRedactor(keys, values)        # a file that may not be valid YAML: hides more than necessary

No other code decides what looks like a secret. Every function takes time linear in the length of its input, because the
texts come from other programs. In doubt it hides: a hidden word costs a question, a leaked password costs a rotation.
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
