"""Into a run and known to its members: entrance, manifest, announcements, the directory."""
