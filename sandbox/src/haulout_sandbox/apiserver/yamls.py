"""YAML as the API server reads it: as JSON in other letters.

What looks like a date is a text, tags mean nothing, only the first document counts. Bounded: nesting is limited as in
`gojson`, and a document whose aliases multiply it is refused before it is unfolded.
"""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haulout.core.marked import JsonLoader
from haulout_sandbox.apiserver.gojson import DEEPEST

_FEW, _MOST_REPEATED = 1000, 0.99  # beyond a few, the share of a document that may come from aliases


class BadYaml(Exception):
    """It cannot be read; the message says why."""


def decode_yaml(body: bytes) -> Any:
    """Return the first document in `body`, or None if there is none."""
    try:
        return _Loader(body).first()
    except yaml.YAMLError as error:
        raise BadYaml(_worded(error)) from None
    except RecursionError:
        raise _too_deep() from None


class _Loader(JsonLoader):
    def first(self) -> Any:
        """Return the first document."""
        try:
            if not self.check_node():
                return None
            node = self.get_node()
            if node is None:
                return None
            _check(node)
            return self.construct_document(node)
        finally:
            self.dispose()

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        """Return the object; as in JSON, all keys are texts."""
        self.flatten_mapping(node)
        return {
            _as_key(self.construct_object(key, deep=True)): self.construct_object(value, deep=deep)
            for key, value in node.value
        }

    def plain(self, node: Node) -> Any:
        """Return a value whose tag means nothing to us, by its form alone."""
        if isinstance(node, MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value


_Loader.add_constructor(None, _Loader.plain)


def _as_key(key: Any) -> str:
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    return str(key)


def _check(root: Node) -> None:
    """Refuse what is too deep or unfolds into too much. Without recursion: nesting is the sender's choice."""
    stack: list[tuple[Node, int, bool]] = [(root, 0, False)]
    seen: set[int] = set()
    count = repeated = 0
    while stack:
        node, depth, again = stack.pop()
        count += 1
        repeated += again
        if depth > DEEPEST:
            raise _too_deep()
        if repeated > _FEW and repeated > _MOST_REPEATED * count:
            raise BadYaml("yaml: document contains excessive aliasing")
        if isinstance(node, ScalarNode):
            continue
        again = again or id(node) in seen  # an alias gives the very node again
        seen.add(id(node))
        inside = node.value if isinstance(node, SequenceNode) else (item for pair in node.value for item in pair)
        stack += [(item, depth + 1, again) for item in inside]


def _too_deep() -> BadYaml:
    return BadYaml("yaml: exceeded max depth of 10000")


def _worded(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"yaml: line {max(error.problem_mark.line, 1)}: {error.problem}"
    return f"yaml: {' '.join(str(error).split())}"
