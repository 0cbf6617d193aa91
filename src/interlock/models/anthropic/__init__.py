"""Anthropic's models."""

from interlock.models.anthropic.anthropic_model import AnthropicModel

__all__ = ["AnthropicModel"]
