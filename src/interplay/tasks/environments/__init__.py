"""Small text environments and games for episodes of several turns."""
