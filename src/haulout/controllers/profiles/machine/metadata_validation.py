"""Which labels, annotations and finalizers a node can have: what the server would refuse must not reach it.

All that one step changes is one write, so a wrong name of one profile would hold up the others on the node, too.
"""

from haulout.controllers.profiles.plugin import SetAnnotation, SetFinalizer, SetLabel
from haulout.kube.selectors import is_label_value, is_qualified_name

_VALUE = "at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or a digit"


def key_problem(key: str) -> str:
    """Return what is wrong with a name; empty if nothing is."""
    return "" if is_qualified_name(key) else f"found {key!r}, expected a name such as ready or example.com/ready"


def value_problem(value: str) -> str:
    """Return what is wrong with a label's value; empty if nothing is."""
    return "" if is_label_value(value) else f"found {value!r}, expected {_VALUE}"


def problem_with_action(action: object) -> str:
    """Return why a change of a node would be refused; to take off what cannot be there changes nothing."""
    match action:
        case SetLabel(key, str() as value):
            return key_problem(key) or value_problem(value)
        case SetAnnotation(key, str()) | SetFinalizer(key, True):
            return key_problem(key)
    return ""
