"""Questions over documents that take several facts to answer: plain, hidden behind chains of keys, or with citations."""
