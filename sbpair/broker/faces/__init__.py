"""How clients see a namespace: AMQP links and HTTP requests in, frames and responses out. No sockets here."""
