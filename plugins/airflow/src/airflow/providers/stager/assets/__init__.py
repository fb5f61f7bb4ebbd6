"""URIs of assets."""
