"""The door users come through: flags, settings, start and end, doctor, check, reports. `cli` opens it."""
