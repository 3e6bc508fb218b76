"""Who is responsible for a shard: certificates, and the state machine by which they change hands without a loss."""
