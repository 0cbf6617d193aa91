"""The commands of conversations: chat, web, claude, and the settings of models."""
