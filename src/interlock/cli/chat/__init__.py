"""The commands for conversations and models: chat, web, claude, conversations, settings …"""
