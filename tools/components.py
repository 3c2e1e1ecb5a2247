"""The registered components, with what they add to packages and monitoring."""

import functools
import importlib.util
from collections.abc import Mapping

from haulout.app.components import ComponentType, component_types
from haulout.runtime.package_files import Packaging


@functools.cache
def packaged_components() -> Mapping[ComponentType, Packaging]:
    """Return the components that have a module `package_files` beside them."""
    modules = {kind: f"{kind.__module__.rpartition('.')[0]}.package_files" for kind in component_types()}
    return {
        kind: importlib.import_module(module).PACKAGING
        for kind, module in modules.items()
        if importlib.util.find_spec(module) is not None
    }
