"""Tables, as `kubectl get` asks for them."""
