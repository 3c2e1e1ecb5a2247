"""Imports the Python listings of a documentation page, as a reader would who saves each of them to the file it names.

A listing is a block `python` whose first line is a comment with a file name: `# quarantine.py`.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

_LISTING = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```", re.DOTALL | re.MULTILINE)


def save_listings(page: Path, folder: Path) -> dict[str, Path]:
    """Write each listing of a page to its file in `folder`; return the files by module name."""
    listings = _LISTING.findall(page.read_text(encoding="utf-8"))
    files = {name: folder / f"{name}.py" for name, _ in listings}
    for name, text in listings:
        files[name].write_text(text, encoding="utf-8")
    return files


def import_module(name: str, file: Path) -> ModuleType:
    """Import a module from a file, under a name by which other listings can import it."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
