"""Questions over documents that take several facts to answer."""
