"""Roll out engines: what was asked for in; healthy containers, their records, or one clear error out."""
