"""The commands of a gateway: serve, and the operator's commands on its database."""
