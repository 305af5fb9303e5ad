"""The HTTP face of the confirmation service: raw ASGI on uvicorn, JSON in and out."""
