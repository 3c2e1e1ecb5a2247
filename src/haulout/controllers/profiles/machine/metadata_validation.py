"""Validates labels, annotations and finalizers before a write, as the API server does.

All changes of a reconcile are one write, so an invalid name in one profile would block the other profiles of the node.
"""

from haulout.controllers.profiles.plugin import SetAnnotation, SetFinalizer, SetLabel
from haulout.kube.selectors import is_label_value, is_qualified_name

_VALUE = "at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or a digit"


def key_problem(key: str) -> str:
    """Return what is wrong with a key; empty if it is valid."""
    return "" if is_qualified_name(key) else f"found {key!r}, expected a name such as ready or example.com/ready"


def value_problem(value: str) -> str:
    """Return what is wrong with the value of a label; empty if it is valid."""
    return "" if is_label_value(value) else f"found {value!r}, expected {_VALUE}"


def problem_with_action(action: object) -> str:
    """Return why the API server would reject an action; empty if it would not. Removing an invalid key is harmless."""
    match action:
        case SetLabel(key, str() as value):
            return key_problem(key) or value_problem(value)
        case SetAnnotation(key, str()) | SetFinalizer(key, True):
            return key_problem(key)
    return ""
