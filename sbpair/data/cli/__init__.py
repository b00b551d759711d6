"""The commands of the audit and of Spark."""
