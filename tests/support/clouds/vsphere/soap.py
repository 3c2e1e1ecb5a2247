"""SOAP as vSphere's SDKs use it: values as XML, with the types that the SDKs expect."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from haulout.errors import CloudError

_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<soapenv:Envelope'
    ' xmlns:soapenc="http://schemas.xmlsoap.org/soap/encoding/"'
    ' xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"'
    ' xmlns:xsd="http://www.w3.org/2001/XMLSchema"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>'
)
_TAIL = "</soapenv:Body></soapenv:Envelope>"


@dataclass(slots=True)
class Element:
    """An element of a request, without namespaces."""

    name: str
    attributes: Mapping[str, str]
    children: list["Element"]
    text: str = ""

    def find(self, name: str) -> "Element | None":
        """Return the first child of a name."""
        return next((child for child in self.children if child.name == name), None)

    def findall(self, name: str) -> list["Element"]:
        """Return the children of a name."""
        return [child for child in self.children if child.name == name]

    def get(self, attribute: str, default: str = "") -> str:
        """Return an attribute."""
        return self.attributes.get(attribute, default)


def parse(data: bytes) -> Element:
    """Return what a request says: the one element in its body. Raises `ValueError`."""
    root = Element("", {}, [])
    stack = [root]

    def begin(name: str, attributes: dict[str, str]) -> None:
        plain = {key.rpartition(":")[2]: value for key, value in attributes.items()}
        made = Element(name.rpartition(":")[2], plain, [])
        stack[-1].children.append(made)
        stack.append(made)

    def add(text: str) -> None:
        stack[-1].text += text

    def refuse(*_: object) -> None:
        raise ValueError("a document type is not expected in SOAP")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.CharacterDataHandler = begin, add
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data, True)
        (body,) = root.children[0].findall("Body")
        (call,) = body.children
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    except IndexError:
        raise ValueError("there is nothing in it") from None
    return call


def text_of(element: Element, name: str) -> str:
    """Return the text of a child; empty if there is none."""
    found = element.find(name)
    return "" if found is None else found.text


@dataclass(frozen=True, slots=True)
class ManagedObjectRef:
    """A managed object."""

    kind: str
    moid: str


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value of a type that must be named."""

    kind: str
    value: Any


def response_envelope(call: str, returned: str) -> str:
    """Return a whole answer; `returned` are elements."""
    return f'{_HEAD}<{call}Response xmlns="urn:vim25">{returned}</{call}Response>{_TAIL}'


def fault_envelope(error: CloudError) -> str:
    """Return a complete response with a fault."""
    detail = f'<{error.code}Fault xmlns="urn:vim25" xsi:type={quoteattr(error.code)}></{error.code}Fault>'
    fault_text = f"<faultcode>ServerFaultCode</faultcode><faultstring>{escape(error.message)}</faultstring>"
    return f"{_HEAD}<soapenv:Fault>{fault_text}<detail>{detail}</detail></soapenv:Fault>{_TAIL}"


def element(name: str, value: Any, *, typed: bool = False) -> str:
    """Return a value as an element; `typed` where a reader cannot know which type it has."""
    kind, inner = _xml_of(value)
    if isinstance(value, ManagedObjectRef):
        kind_of = ' xsi:type="ManagedObjectReference"' if typed else ""
        return f"<{name} type={quoteattr(value.kind)}{kind_of}>{inner}</{name}>"
    named = f" xsi:type={quoteattr(kind)}" if typed or isinstance(value, TypedValue) else ""
    return f"<{name}{named}>{inner}</{name}>"


def _xml_of(value: Any) -> tuple[str, str]:
    """Return the type of a value, and its XML."""
    match value:
        case TypedValue(kind, inner):
            return kind, _items(kind.removeprefix("ArrayOf"), inner) if isinstance(inner, list) else _xml_of(inner)[1]
        case list():
            return "ArrayOfManagedObjectReference", _items("ManagedObjectReference", value)
        case Mapping():
            return "", "".join(_members(value))
    return _plain(value)


def _plain(value: Any) -> tuple[str, str]:
    match value:
        case ManagedObjectRef(moid=moid):
            return "ManagedObjectReference", escape(moid)
        case bool():
            return "xsd:boolean", "true" if value else "false"
        case datetime():
            return "xsd:dateTime", f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return "xsd:string", escape(str(value))


def _items(name: str, items: list[Any]) -> str:
    return "".join(element(name, item) for item in items)


def _members(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield element(name, value)
