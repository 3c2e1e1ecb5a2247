"""JSON or YAML output of the same document."""

import msgspec


def to_json(document: object) -> bytes:
    """Return a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document))


def to_yaml(document: object) -> str:
    import yaml

    return yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=True, width=120)
