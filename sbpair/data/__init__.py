"""Data: prove from journals that nothing was lost, and read and write messages with Spark."""
