"""Anthropic's models."""

from interlock.models.anthropic.anthropic_model import VERSION, AnthropicModel

__all__ = ["VERSION", "AnthropicModel"]
