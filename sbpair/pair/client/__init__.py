"""An AMQP 1.0 client for Service Bus over asyncio: connections, links, tokens and requests."""
