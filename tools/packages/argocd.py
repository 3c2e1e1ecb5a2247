"""Health checks for Argo CD: a patch of its ConfigMap `argocd-cm`, with the same script for each of our kinds."""

import yaml

from haulout.api.objects import RawObject


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as literal blocks, so that a script can be read in a diff."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def patch(definitions: list[RawObject], script: str) -> str:
    """Return a patch that makes Argo CD use the script for the objects of these CustomResourceDefinitions."""
    names = (f"{crd['spec']['group']}_{crd['spec']['names']['kind']}" for crd in definitions)
    data = {f"resource.customizations.health.{name}": script for name in names}
    return yaml.dump({"data": data}, Dumper=_Dumper, width=1000)
