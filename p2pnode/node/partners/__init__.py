"""With whom the work is shared: likeness, exchanges, circles, bridges, snapshots."""
