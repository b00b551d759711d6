"""Frontends: AMQP links, the administration API, REST and the dashboard of a namespace. They open no sockets."""
