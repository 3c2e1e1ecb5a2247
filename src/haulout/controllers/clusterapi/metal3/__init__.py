"""Power off BareMetalHosts of Metal3 while their Machine is in maintenance."""
