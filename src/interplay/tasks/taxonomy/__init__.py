"""A deep hierarchy whose facts enter the weights, for recall by depth."""
