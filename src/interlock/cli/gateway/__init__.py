"""The commands for gateways: `serve`, and operators' commands that use its database."""
