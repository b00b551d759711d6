"""What a broker keeps on disk: one directory, in it one SQLite file a namespace."""
