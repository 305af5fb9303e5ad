"""Model servers: pure codecs, HTTP, retries, keys, the catalog."""
