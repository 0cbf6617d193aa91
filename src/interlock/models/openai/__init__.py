"""Models from OpenAI and from servers that are compatible with it."""

from interlock.models.openai.openai_model import OpenAIModel, ollama_url

__all__ = ["OpenAIModel", "ollama_url"]
