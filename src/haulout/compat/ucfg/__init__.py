"""The YAML dialect of `maintenance.yaml`, as the Go library go-ucfg reads it."""
