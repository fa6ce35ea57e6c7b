"""How many replicas a service needs: signals from its engines, and a decision that can be read. Pure."""
