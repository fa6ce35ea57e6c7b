"""NetworkPolicies held to by packets, on a cluster that enforces them."""
