"""The results of an audit: summary, tables, report."""
