"""Haulout: node maintenance for Kubernetes."""


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for: that takes as long as everything else `haulout --help` does."""
    if name == "__version__":
        from importlib.metadata import version

        return version("haulout")
    raise AttributeError(name)
