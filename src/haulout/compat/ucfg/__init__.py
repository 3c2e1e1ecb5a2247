"""The YAML dialect of `maintenance.yaml`, as parsed by the Go library go-ucfg."""
