"""`sbpair send`, `receive`, `peek` and `purge`: the messages of one entity of one namespace."""
