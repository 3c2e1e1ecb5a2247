"""Go's text/template, for messages.

    template = parse("{{ .Node.Name }} is {{ .State }}", name="message")
    problems = check(template, shape)          # errors that can be found without data
    text = template.render(data)

All of text/template is implemented, including the way Go prints values. A template is pure: it reads only its data,
whose types define what it may use, and returns a text, within limits. Errors are `TemplateError`s with the line and the
column in the template.
"""

from dataclasses import dataclass, field

from haulout.compat.gotemplate.errors import Source
from haulout.compat.gotemplate.evaluator import render
from haulout.compat.gotemplate.functions import FUNCTIONS
from haulout.compat.gotemplate.nodes import Tree
from haulout.compat.gotemplate.parser import parse_tree
from haulout.compat.gotemplate.times import TIME
from haulout.compat.gotemplate.type_checker import check_tree
from haulout.compat.gotemplate.types import Type
from haulout.errors import TemplateError

__all__ = ["TIME", "Template", "TemplateError", "Type", "check", "parse"]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. It is immutable, and may be rendered any number of times."""

    source: Source
    tree: Tree = field(repr=False)

    def render(self, data: object) -> str:
        """Return the text for this data. Raise `TemplateError`."""
        return render(self.source, self.tree, data)


def parse(text: str, name: str = "message") -> Template:
    """Parse a template. Raise `TemplateError`, with the name and the position in the text."""
    source = Source(text, name)
    return Template(source, parse_tree(source, functions=frozenset(FUNCTIONS)))


def check(template: Template, shape: Type) -> tuple[TemplateError, ...]:
    """Return all errors of a template for data of this type, in the order of the text."""
    return check_tree(template.source, template.tree, shape)
