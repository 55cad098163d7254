"""Images that trained generators make: drawn, looked at, measured."""
