"""Go's text/template, for messages.

    template = parse("{{ .Node.Name }} is {{ .State }}", name="message")
    problems = check(template, shape)          # what can be told before there are data
    text = template.render(data)

Everything of text/template is here, with Go's way to print values. A template is pure: it reads data that were given
to it, of types that say what it may use, and returns a text, within limits. What is wrong is a `TemplateError` with the
line and the column in the template.
"""

from dataclasses import dataclass, field

from haulout.compat.gotemplate.evaluator import render
from haulout.compat.gotemplate.functions import FUNCTIONS
from haulout.compat.gotemplate.nodes import Tree
from haulout.compat.gotemplate.parser import parse_tree
from haulout.compat.gotemplate.source import Source
from haulout.compat.gotemplate.times import TIME
from haulout.compat.gotemplate.type_checker import check_tree
from haulout.compat.gotemplate.types import Type
from haulout.errors import TemplateError

__all__ = ["TIME", "Template", "TemplateError", "Type", "check", "parse"]


@dataclass(frozen=True, slots=True)
class Template:
    """A template that was understood."""

    source: Source
    tree: Tree = field(repr=False)

    def render(self, data: object) -> str:
        """Return it filled in with data; raises `TemplateError`."""
        return render(self.source, self.tree, data)


def parse(text: str, name: str = "message") -> Template:
    """Return a template; raises `TemplateError`."""
    source = Source(text, name)
    return Template(source, parse_tree(source, functions=frozenset(FUNCTIONS)))


def check(template: Template, shape: Type) -> tuple[TemplateError, ...]:
    """Return all that is wrong with a template for data of a shape, in the order of the text."""
    return check_tree(template.source, template.tree, shape)
