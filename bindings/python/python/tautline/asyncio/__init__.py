"""Servers and clients under asyncio, with the interface of ``websockets.asyncio``."""
