"""The engine that runs an audit on Spark."""
