"""A deep hierarchy whose facts a model memorises, for recall by depth."""
