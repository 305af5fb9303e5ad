"""Values and extension shapes that every layer shares; standard library and msgspec only, no I/O."""
