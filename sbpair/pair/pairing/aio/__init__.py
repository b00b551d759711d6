"""Sends over azure.servicebus.aio, in a loop."""
