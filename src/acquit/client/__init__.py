"""The client: one pure core, an asyncio driver, and a blocking façade over that."""
