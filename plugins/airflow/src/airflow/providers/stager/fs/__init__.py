"""File systems of ObjectStoragePath."""
