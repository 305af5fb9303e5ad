"""HTTP/1.1 as a client speaks it to model servers, platforms and webhooks, on asyncio and httptools."""
