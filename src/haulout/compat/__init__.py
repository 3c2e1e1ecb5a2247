"""Go dialects in the configuration of the SAP maintenance-controller: templates, expressions, YAML, quoting, flags.

The reference is that controller at v2.1.0: go-ucfg 0.9.1 on yaml.v2 2.4.0, gval 1.2.4, and Go's own packages. A file
that it accepts has the same meaning here. Where it would fail at run time, or silently ignore something, Haulout
reports an error or a warning when the file is loaded.
"""
