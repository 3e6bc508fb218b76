"""Who is there: table, directory, standing, swarm time. Pure: values in, decisions out."""
