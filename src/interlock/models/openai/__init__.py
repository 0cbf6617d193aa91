"""Models that are used through OpenAI's API."""

from interlock.models.openai.openai_model import OpenAIModel

__all__ = ["OpenAIModel"]
