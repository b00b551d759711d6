"""Sends over azure.servicebus, in threads."""
