"""What an audit shows and writes: summary, tables, report."""
