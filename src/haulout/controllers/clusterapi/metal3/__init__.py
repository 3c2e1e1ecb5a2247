"""Powers BareMetalHosts of Metal3 off while their Machine is in maintenance."""
