"""The broker's storage on disk: a data directory that holds one SQLite file for each namespace."""
