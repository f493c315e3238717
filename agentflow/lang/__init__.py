"""The workflow language: text in, coroutine functions out. No I/O, no event loop."""
